"""Layers that do the same are compiled once, and give what the whole graph gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.ge_cache.inductor import repeated, runtime, sources
from gearcache.ge_cache.inductor.interpreter_lock import INTERFACE, INTERFACE_END
from gearcache.ge_cache.private_torch.codegen.cpp_objects import CppSource, Lowered
from gearcache.ge_cache.private_torch.codegen.inductor import inductor_compile
from tests.scenarios.repeated import LAYERS
from tests.support.relaunch import cold_and_warm
from tests.support.scenarios import strict_config

pytestmark = pytest.mark.slow

#: Layers that do less work than some are compiled as a whole.
WIDTH = 384


@pytest.mark.usefixtures("compiled_here")
def test_two_stacks_of_layers_give_what_eager_gives_and_a_reader_is_shown_one_layer(tmp_path: Path) -> None:
    cold_and_warm("tests.scenarios.repeated", tmp_path, backend="inductor", tolerance=1e-5).assert_right("stacks")
    (text,) = [gearcache.readable_cache(path, print_output=False) for path in tmp_path.rglob("manifest*")]
    runs = [int(times) for times in re.findall(r"operations compiled once, run (\d+) times", text)]
    assert runs == [LAYERS, 2 * LAYERS]
    assert text.count("= aten::gelu") == 1
    assert re.search(rf"… × {LAYERS}: %\d+ to %\d+ do what these \d+ operations do", text)


class Tower(nn.Module):
    """Layers of one matrix each: as few as are worth it."""

    def __init__(self, depth: int = 5) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(WIDTH, WIDTH) / WIDTH for _ in range(depth))

    def run(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            y = torch.tanh(x @ weight) * 0.5
            x = x + y.sin().cos().exp().neg().abs()
        return x


def _compiled(method: Callable[..., Any], **options: Any) -> Any:
    return gearcache.cache_compile(method, config=strict_config("inductor", **options), dynamic=False)


@pytest.mark.usefixtures("compiled_here")
def test_a_graph_that_cannot_be_put_together_is_compiled_as_a_whole_and_says_why(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_RUN_END", "} // the end")
    tower, x = Tower(), torch.randn(3, WIDTH)
    method = _compiled(tower.run)
    torch.testing.assert_close(method(x), tower.run(x))
    text = gearcache.readable_cache(method.entry_path, print_output=False)
    assert re.search("compiled as a whole: .*NotMergeable: '} // the end' stands 0 times in the source of a part", text)


class Writing(Tower):
    """Each layer writes a cache, of which copies were made before."""

    def written(self, x: Tensor, cache: Tensor) -> tuple[Tensor, ...]:
        kept = [cache.clone(), cache + 0, cache.contiguous().clone(), cache.view(-1).clone()]
        for weight in self.weights:
            cache.mul_(0.5)
            x = x + torch.tanh(x @ weight).sin().cos().exp().neg() * cache + kept[0]
        return (x, *kept, cache * 1)


@pytest.mark.usefixtures("compiled_here")
def test_what_was_copied_before_the_layers_is_not_what_they_write_whatever_the_option_says(cache_dir: Path) -> None:
    model, texts = Writing(), []
    for repeats in (True, False):
        method = _compiled(model.written, repeats=repeats)
        x, ours, theirs = torch.randn(3, WIDTH), torch.ones(3, WIDTH), torch.ones(3, WIDTH)
        torch.testing.assert_close((method(x, ours), ours), (model.written(x, theirs), theirs))
        texts.append(gearcache.readable_cache(method.entry_path, print_output=False))
    assert "compiled once, run 5 times" in texts[0]
    assert "compiled once" not in texts[1], "the option is in the key"


def test_outputs_of_other_strides_than_the_next_part_takes_are_refused() -> None:
    part = repeated.ProgramPart(torch.fx.GraphModule(nn.Module(), torch.fx.Graph()), [], [torch.empty(2, 3)], [])
    assert repeated._fit(part, [(3, 1)])
    assert not repeated._fit(part, [(1, 2)])
    assert not repeated._fit(part, [None])
    assert not repeated._fit(part, [])
    narrow = repeated.ProgramPart(part.module, [], [torch.empty(1, 3)], [])
    assert repeated._fit(narrow, [(7, 1)]), "the stride of a dim of size 1 says nothing"


def _written() -> CppSource:
    """Return what Inductor writes for a graph of one operation."""
    found: list[CppSource] = []

    def keep(make: Any, lowered: Lowered) -> str:
        found.append(lowered.written)
        return ""

    module = torch.fx.symbolic_trace(torch.nn.ReLU())
    module.graph.output_node().args = ([module.graph.output_node().args[0]],)
    inductor_compile(module, [torch.zeros(8)], {}, lambda run, *args, **keywords: run(*args, **keywords), objects=keep)
    return found[0]


def test_inductor_writes_the_runtime_where_it_is_looked_for() -> None:
    parted = runtime.without_runtime(_written())
    assert "AOTInductorModelContainerRun(" in parted.runtime
    assert "AOTInductorModelContainerRun(" not in parted.wrapper
    assert "AOTInductorModel::run_impl(" in parted.wrapper
    assert runtime.without_runtime(parted) == parted
    assert runtime.without_runtime(CppSource("other", "")) == CppSource("other", "")


def test_an_object_that_cannot_be_linked_to_the_runtime_gets_its_own() -> None:
    made: list[bool] = []

    def make(written: CppSource) -> str:
        made.append(bool(written.runtime))
        if written.runtime:
            raise RuntimeError("the linker has another idea")
        return "graph.so"

    text = f"{INTERFACE}int x;\n{INTERFACE_END}int y;\n"
    assert runtime.make_object(make, Lowered(CppSource(text, ""), False, [])) == "graph.so"
    assert made == [True, False]
