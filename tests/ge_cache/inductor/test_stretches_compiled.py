"""Layers that do the same are compiled once, as `test_inductor` shows: here, what is done where that cannot be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import CompileError
from gearcache.ge_cache.graphs import repeats
from gearcache.ge_cache.inductor import library, repeated, sources
from tests.support.scenarios import strict_config


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(4, 4) for _ in range(5))

    def run(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            y = torch.tanh(x @ weight) * 0.5
            x = x + y.sin().cos().exp().neg().abs()
        return x

    def run_beside(self, x: Tensor) -> Tensor:
        """Each layer uses a tensor and a view of it, for which Inductor takes the tensor again."""
        beside = torch.tanh(x)
        viewed = beside.view(-1, 2).view(beside.shape)
        for weight in self.weights:
            y = torch.tanh(x @ weight) * beside
            x = x + y.sin().cos().exp().neg().abs() * viewed
        return x


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_here")
def test_a_part_that_gives_one_tensor_twice_gives_two_handles(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "LEAST_BYTES", 0)
    tower, x = Tower(), torch.randn(3, 4)
    method: Any = gearcache.cache_compile(tower.run_beside, config=strict_config("inductor"), dynamic=False)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(method(x), tower.run_beside(x))
    assert "compiled as a whole" not in gearcache.readable_cache(method.entry_path, print_output=False)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_here")
def test_a_graph_that_cannot_be_put_together_is_compiled_as_a_whole_and_says_why(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_RUN_END", "} // the end")
    monkeypatch.setattr(repeats, "LEAST_BYTES", 0)
    tower, x = Tower(), torch.randn(3, 4)
    method: Any = gearcache.cache_compile(tower.run, config=strict_config("inductor"), dynamic=False)
    with torch.no_grad():
        torch.testing.assert_close(method(x), tower.run(x))
    text = gearcache.readable_cache(method.entry_path, print_output=False)
    assert re.search("compiled as a whole: .*NotMergeable: '} // the end' stands 0 times in the source of a part", text)


def test_outputs_of_other_strides_than_the_next_part_takes_are_refused() -> None:
    part = repeated.ProgramPart(torch.fx.GraphModule(nn.Module(), torch.fx.Graph()), [], [torch.empty(2, 3)], [])
    assert repeated._fit(part, [(3, 1)])
    assert not repeated._fit(part, [(1, 2)])
    assert not repeated._fit(part, [None])
    assert not repeated._fit(part, [])
    narrow = repeated.ProgramPart(part.module, [], [torch.empty(1, 3)], [])
    assert repeated._fit(narrow, [(7, 1)]), "the stride of a dim of size 1 says nothing"


@pytest.mark.usefixtures("compiled_here")
def test_the_option_leaves_the_search_out_and_is_in_the_key(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*given: Any) -> None:
        raise RuntimeError("before the compile")

    searched, keys = [], set()
    monkeypatch.setattr(library, "build_repeats", lambda *given: searched.append(given) or "")
    monkeypatch.setattr(library.private_inductor, "inductor_compile", stop)
    for repeated_layers in (True, False):
        config = strict_config("inductor", repeats=repeated_layers)
        method: Any = gearcache.cache_compile(Tower().run, config=config, dynamic=False)
        with torch.no_grad(), pytest.raises(CompileError, match="before the compile"):
            method(torch.randn(3, 4))
        (binding,) = method._bindings
        keys.add(binding.entry.key)
    assert (len(searched), len(keys)) == (1, 2)
