"""`gearcache.compat.torchair` in place of torchair's own: the cases that its users live from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torchair
from torch import Tensor, nn

from gearcache.compat import torchair as compat
from gearcache.errors import OptionError
from tests.npu import native


@pytest.fixture
def installed(cache_dir: Path) -> Iterator[None]:
    compat.install()
    yield
    compat.uninstall()


class Model(nn.Module):
    def doubled(self, x: Tensor) -> Tensor:
        return x + x

    def branch(self, x: Tensor, double: bool) -> Tensor:
        return x * 2 if double else x - 1


def npu(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*sizes, dtype=dtype).to("npu")


def same(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found.cpu(), expected.cpu(), atol=1e-6)


@pytest.mark.usefixtures("installed")
def test_custom_decompositions_are_applied_and_in_the_key() -> None:
    model = Model().to("npu")
    x = npu(2, 4, dtype=torch.complex64)
    plain = torchair.inference.cache_compile(model.doubled)(x)
    changed = torchair.inference.cache_compile(
        model.doubled, custom_decompositions={torch.ops.aten.add.Tensor: lambda a, b, alpha=1: a - b}
    )(x)
    assert same(plain, x + x)
    assert same(changed, x - x)


@pytest.mark.usefixtures("installed")
def test_the_options_of_the_config_reach_ge_and_are_readable(capsys: pytest.CaptureFixture[str]) -> None:
    config = torchair.CompilerConfig()
    config.experimental_config.topology_sorting_strategy = "BFS"
    cached = torchair.inference.cache_compile(Model().doubled, config=config)
    cached(npu(2, 4))
    assert native.OPTIONS[-1]["ge.topoSortingMode"] == "0"
    text = torchair.inference.readable_cache(cached.entry_path, print_output=False)
    assert capsys.readouterr().out == ""
    shown = "Model.doubled", "backend.config.experimental_config.topology_sorting_strategy", "aten::add.Tensor"
    for part in (*shown, "Gears", "Frame"):
        assert part in text, part


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: compat.cache_compile(len), ValueError, "Only method can be cached now"),
        (lambda: compat.cache_compile(Path().exists), ValueError, "Only torch.nn.Module method"),
        (lambda: compat.cache_compile(Model().doubled, optoins={}), TypeError, "optoins"),
        (lambda: compat.cache_compile(Model().doubled, fullgraph=False), ValueError, "fullgraph is False"),
        (
            lambda: compat.cache_compile(Model().doubled, config=5),
            OptionError,
            r"config is an int; it must be a torchair\.CompilerConfig",
        ),
    ],
)
def test_what_torchair_refused_or_dropped_is_an_error(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
