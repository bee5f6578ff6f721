"""`set_dim_gears` under `install()`: what it sets and marks, and that its marks change nothing of our own traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torchair
from torch import Tensor, nn

import gearcache
from gearcache.compat import torchair as compat
from gearcache.errors import GearSpecError
from tests.npu import native

own_set_dim_gears = torchair.inference.set_dim_gears


@pytest.fixture
def installed() -> Iterator[None]:
    torch.compiler.reset()
    compat.install()
    yield
    compat.uninstall()
    torch.compiler.reset()


class Scale(nn.Module):
    def scaled(self, x: Tensor) -> Tensor:
        return x * x.size(0) + 1


def rows(count: int, gears: Any = None, marker: Any = compat.set_dim_gears) -> Tensor:
    x = torch.randn(count, 3).to("npu")
    if gears is not None:
        marker(x, {0: gears})
    return x


def marks(x: Tensor) -> set[int]:
    return set(getattr(x, "_dynamo_dynamic_indices", ()))


def test_gears_are_set_and_their_dims_marked_under_torchairs_names_of_the_parameters() -> None:
    x = rows(2)
    compat.set_dim_gears(t=x, dim_gears={0: (2, 4), 1: [3, 5]})
    compat.set_dim_gears(x, {0: [2, 4], 1: (3, 5)})
    assert x.dim_gears == {0: [2, 4], 1: [3, 5]}  # type: ignore[attr-defined]
    assert marks(x) == {0, 1}


def test_a_fault_at_the_second_dim_leaves_nothing_set_or_marked() -> None:
    for second in ({1: [0, 3]}, {5: [2, 3]}, {1: [3]}, {1: 3}):
        x = rows(2)
        with pytest.raises(GearSpecError):
            compat.set_dim_gears(x, {0: [2, 4], **second})
        assert not hasattr(x, "dim_gears")
        assert marks(x) == set()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("first", "marker"), [(1, compat.set_dim_gears), (2, own_set_dim_gears)], ids=["ours", "before install"]
)
def test_a_cached_method_takes_no_notice_of_the_marks(first: int, marker: Any, cache_dir: Path) -> None:
    model = Scale()
    cached: Any = torchair.inference.cache_compile(model.scaled)
    for count in (first, 4, 1, 2):
        x = rows(count, [1, 2, 4], marker)
        torch._dynamo.mark_static(x)
        assert torch.equal(cached(x).cpu(), model.scaled(x).cpu())
        assert marks(x) == {0}, "the mark was not put back"
        assert x._dynamo_static_indices == {0, 1}  # type: ignore[attr-defined]
    bare: Any = gearcache.cache_compile(
        model.scaled, config=gearcache.CompilerConfig(torchair=torchair.CompilerConfig(), backend="torchair")
    )
    x = rows(2)
    gearcache.set_dim_gears(x, {0: [1, 2, 4]})
    torch._dynamo.mark_static(x, 1)
    assert torch.equal(bare(x).cpu(), model.scaled(x).cpu())
    assert bare.stats.traces == 0, "the marks of torchair are in the key"


@pytest.mark.usefixtures("installed")
def test_one_tensor_goes_to_torch_compile_and_to_a_cached_method(cache_dir: Path) -> None:
    model, before = Scale(), len(native.OPTIONS)
    cached: Any = torchair.inference.cache_compile(model.scaled)
    compiled: Any = torch.compile(model.scaled, fullgraph=True, backend=compat.get_npu_backend())
    for count in (2, 4):
        x = rows(count, [2, 4])
        expected = model.scaled(x).cpu()
        assert torch.equal(cached(x).cpu(), expected)
        assert torch.equal(compiled(x).cpu(), expected)
    geared = [options["ge.dynamicDims"] for options in native.OPTIONS[before:] if "ge.dynamicDims" in options]
    assert [sorted(gears.split(";")) for gears in geared] == [["2", "4"]]
