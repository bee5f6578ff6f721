"""Tensors of a gear's sizes and of other strides: another variant, or a copy where the user says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import gearcache
from tests.support.launches import serve_twice
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
    large = torch.arange(80.0).view(4, 20)
    packed = torch.arange(16.0).view(4, 4)[:1]
    calls = [packed, large[:1, :4], large[:1, :6], packed]
    serve_twice(OfStrides, method, [(x,) for x in calls], cache_dir=tmp_path, dynamic=dynamic)
