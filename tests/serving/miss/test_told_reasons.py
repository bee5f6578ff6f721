"""A miss is explained by the graph that is nearest to the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import strict_config


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(4, 64, 8))

    def best(self, x: Tensor, k: int) -> Tensor:
        return x.topk(k, 1)[0] * (2 if k > 8 else 3)

    def write(self, x: Tensor, position: int) -> Tensor:
        self.keys[: x.size(0), position] = x
        return self.keys[: x.size(0), : position + 1].sum(1)


def cached_method(name: str, **keywords: Any) -> Any:
    return gearcache.cache_compile(getattr(Net(), name), config=strict_config(on_miss="compile"), **keywords)


def told(cached: Any) -> str:
    """Return the last reason, and what to do."""
    return str(cached.explain()).rpartition("miss: ")[2]


def test_sizes_are_the_reason_where_another_trace_only_has_other_ints(cache_dir: Path) -> None:
    gears = {"x": {0: [2, 4]}}
    cached = cached_method("best", gears=gears)
    for k in (4, 12):
        cached(torch.rand(2, 16), k)
    cached = cached_method("best", gears=gears)
    for k in (4, 12):
        cached(torch.rand(2, 16), k)
    cached(torch.rand(5, 16), 4)
    assert told(cached).startswith("argument `x` is of shape (5, 16)")


def test_an_int_is_the_reason_where_a_graph_takes_the_sizes(cache_dir: Path) -> None:
    cached = cached_method("best", dynamic=None)
    for shape, k in (((2, 16), 2), ((2, 16), 5), ((3, 16), 6), ((4, 16), 6)):
        cached(torch.rand(*shape), k)
    cached(torch.rand(4, 16), 1)
    assert told(cached).startswith("`k`: ")


def test_the_advice_for_an_int_that_the_trace_needs_names_the_ways_out(cache_dir: Path) -> None:
    cached = cached_method("write", gears={"x": {0: [2, 4]}})
    for position in (3, 4):
        cached(torch.rand(2, 8), position)
    assert "`position`: constant was 3, is now 4" in told(cached)
    assert "pass it as a tensor, or write a slice for an index" in told(cached)


class Scaled(nn.Module):
    def __init__(self, scale: float, shift: float) -> None:
        super().__init__()
        self.scale, self.shift = scale, shift

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift


def test_only_the_nearest_of_several_stored_graphs_is_told_of(cache_dir: Path) -> None:
    def first_call(scale: float, shift: float) -> str:
        cached = gearcache.cache_compile(Scaled(scale, shift).forward, config=strict_config(), dynamic=False)
        cached(torch.ones(2))
        return told(cached)

    first_call(1.5, 1.5), first_call(2.5, 1.5)
    told_of_shift = first_call(2.5, 3.5)
    assert told_of_shift.startswith("`self.shift`: constant was 1.5, is now 3.5")
    assert "scale" not in told_of_shift
    told_of_both = first_call(7.5, 1.5)
    assert told_of_both.startswith("`self.scale` is 7.5; the 2 stored traces are for 1.5, 2.5")
