"""Tensors of a gear's sizes and of other strides: another variant, or a copy where the user says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import gearcache
from gearcache.errors import InputError
from tests.support.scenarios import strict_config

GEARS = {"x": {0: [2, 4]}}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(6, 6))

    def run(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.weight) + x

    def write(self, x: Tensor) -> Tensor:
        x += 1
        return x * 2

    def view(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:1], x * 2


def transposed(rows: int) -> Tensor:
    return torch.randn(6, rows).t()


def sliced(rows: int) -> Tensor:
    return torch.randn(rows, 12)[:, ::2]


def assert_as_eager(cached: Any, method: Callable[..., Any], x: Tensor, *, strides: bool = True) -> None:
    base = x.clone() if 0 in x.stride() else torch.empty_strided(x.shape, x.stride()).copy_(x)
    with torch.no_grad():
        found, expected = cached(x), method(base)
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for mine, theirs in pairs:
        assert torch.equal(mine, theirs)
        assert not strides or mine.stride() == theirs.stride()
    assert torch.equal(x, base)


@pytest.mark.parametrize("options", [{"dynamic": False}, {"gears": GEARS}], ids=["static", "gears"])
def test_other_strides_are_another_variant(options: dict[str, Any], cache_dir: Path) -> None:
    net = Net()
    cached = gearcache.cache_compile(net.run, config=strict_config(), **options)
    for x in (torch.randn(4, 6), transposed(4), sliced(4), torch.randn(4, 6), transposed(4)):
        assert_as_eager(cached, net.run, x)
    traces = cached.stats.traces
    assert_as_eager(cached, net.run, sliced(4))
    assert cached.stats.traces == traces
    assert sum(cached.stats.gears.values()) == 6, "a graph has answered each call"
    if "gears" in options:
        assert cached.stats.compiles == 4, "other gears are not compiled for strides that one call has"
        again = gearcache.cache_compile(net.run, config=strict_config(), **options)
        for x in (sliced(4), torch.randn(2, 6), transposed(4)):
            assert_as_eager(again, net.run, x)
        assert again.stats.compiles == 0


def test_copies_are_made_where_the_user_says_so(cache_dir: Path) -> None:
    net = Net()
    cached = gearcache.cache_compile(net.run, config=strict_config(on_strides="copy"), gears=GEARS)
    for x in (torch.randn(4, 6), transposed(4), sliced(4), transposed(2), sliced(2), torch.randn(2, 6), sliced(4)):
        assert_as_eager(cached, net.run, x, strides=False)
    assert cached.stats.compiles == 2
    assert cached.stats.calls == 7
    assert cached.stats.shapes == {(4,): 4, (2,): 3}
    with pytest.raises(InputError, match="of dtype"):
        cached(sliced(4).double())
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        cached(torch.randn(4, 5))


def test_nothing_is_copied_into_strides_that_overlap(cache_dir: Path) -> None:
    net = Net()
    cached = gearcache.cache_compile(net.run, config=strict_config(on_strides="copy"), dynamic=False)
    for x in (torch.randn(1, 6).expand(4, 6), torch.randn(4, 6), sliced(4)):
        assert_as_eager(cached, net.run, x, strides=False)
    assert cached.stats.compiles == 2, "the third call is copied into the strides of the second one"


class Cloning(torch.nn.Module):
    """Methods for which a copy of a view is one or not, as the strides of `x` are."""

    def returns(self, x: Tensor) -> Tensor:
        return x.t().contiguous()

    def computes(self, x: Tensor) -> Tensor:
        return x.t().contiguous() * 2 + x.reshape(-1).sum()


@pytest.mark.parametrize("name", [name for name in vars(Cloning) if name[0] != "_"])
def test_what_may_be_a_view_or_a_copy_is_never_copied(name: str, cache_dir: Path) -> None:
    method = getattr(Cloning(), name)
    cached = gearcache.cache_compile(method, config=strict_config(on_strides="copy"), dynamic=False)
    whole = torch.arange(32.0).view(4, 8)  # sums of whole numbers are the same in any order
    for x in (whole[:, :4].contiguous(), whole[:, 4:].contiguous().t(), whole.clone()[:, ::2]):
        twin = torch.empty_strided((4, 8), (8, 1)).as_strided(x.shape, x.stride()).copy_(x)
        found, expected = cached(x), method(twin)
        assert torch.equal(found, expected)
        assert _shares(found, x) == _shares(expected, twin)
        assert torch.equal(x, twin)
    assert cached.stats.compiles == (1 if name == "computes" else 3)


def _shares(left: Tensor, right: Tensor) -> bool:
    return left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()


@pytest.mark.parametrize("name", ["write", "view"])
def test_what_is_written_or_shared_is_never_copied(name: str, cache_dir: Path) -> None:
    net = Net()
    method = getattr(net, name)
    cached = gearcache.cache_compile(method, config=strict_config(on_strides="copy"), gears=GEARS)
    for x in (torch.randn(4, 6), transposed(4), sliced(4)):
        assert_as_eager(cached, method, x)
    assert cached.stats.compiles == 4
    if name == "view":
        x = transposed(4)
        assert cached(x)[0].data_ptr() == x.data_ptr()


def test_another_dtype_is_another_variant_where_misses_compile(cache_dir: Path) -> None:
    net = Net()
    cached = gearcache.cache_compile(net.view, config=strict_config())
    for dtype in (torch.float32, torch.float64, torch.float32):
        x = torch.ones(3, 6, dtype=dtype)
        assert cached(x)[1].dtype == dtype
    assert cached.stats.compiles == 2


def test_another_dtype_runs_without_a_graph_where_misses_do(cache_dir: Path) -> None:
    net = Net()
    cached = gearcache.cache_compile(net.view, config=strict_config(on_miss="eager"), gears=GEARS)
    for dtype in (torch.float32, torch.float64):
        assert cached(torch.ones(4, 6, dtype=dtype))[1].dtype == dtype
    assert (cached.stats.calls, cached.stats.eager_reasons) == (2, {"on_miss": 1})


class OfStrides(torch.nn.Module):
    """Its results follow from strides, also from those of dims of size 0 and 1, which address nothing."""

    def told(self, x: Tensor) -> tuple[Tensor, ...]:
        return x * x.stride(0), x.t(), x[:, 1:]

    def branch(self, x: Tensor) -> Tensor:
        return x + 1 if x.stride(0) == x.shape[1] else x + 2


@pytest.mark.parametrize(("method", "dynamic"), [("told", None), ("branch", True)])
def test_the_strides_of_a_dim_of_size_one_are_compared(method: str, dynamic: bool | None, tmp_path: Path) -> None:
    model, large = OfStrides(), torch.arange(80.0).view(4, 20)
    packed = torch.arange(16.0).view(4, 4)[:1]
    calls = [packed, large[:1, :4], large[:1, :6], packed]
    for _ in range(2):  # relaunched too
        cached = gearcache.cache_compile(
            getattr(model, method), cache_dir=tmp_path, config=strict_config(), dynamic=dynamic
        )
        for x in calls:
            found, expected = cached(x), getattr(model, method)(x)
            pairs = zip(found, expected, strict=True) if method == "told" else [(found, expected)]
            assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in pairs), (x.shape, x.stride())
    assert cached.stats.traces == 0
