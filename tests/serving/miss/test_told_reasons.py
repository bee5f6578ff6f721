"""A miss is explained by the graph that is nearest to the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import strict_config


class Net(nn.Module):
    def best(self, x: Tensor, k: int) -> Tensor:
        return x.topk(k, 1)[0] * (2 if k > 8 else 3)


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
