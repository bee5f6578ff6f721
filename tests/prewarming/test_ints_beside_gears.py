"""A prewarm compiles its call at all gears, with the ints and other sizes of the call, and says nothing of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import strict_config

GEARS = [2, 4, 8]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 12)

    def branch(self, x: Tensor, n: int) -> Tensor:
        return self.linear(x) * n if n < x.size(0) else self.linear(x) + n

    def viewed(self, x: Tensor, n: int) -> Tensor:
        return self.linear(x).view(n, -1)

    def unequal(self, x: Tensor, n: int) -> Tensor:
        return self.linear(x) * n if n != x.size(0) else self.linear(x) + n


def cached_method(net: Net, name: str) -> Any:
    return gearcache.cache_compile(getattr(net, name), gears={"x": {0: GEARS}}, config=strict_config(), dynamic=True)


def build(name: str, *calls: tuple[int, int]) -> Callable[[], None]:
    def function() -> None:
        cached = cached_method(Net(), name)
        for size, n in calls:
            cached.warm(torch.ones(size, 8), n)

    return function


@pytest.mark.parametrize("name", ["branch", "viewed"])
def test_a_server_compiles_nothing_for_the_call_at_any_gear(name: str, cache_dir: Path) -> None:
    net, n = Net(), 2
    assert gearcache.prewarm(build(name, (4, n))).failed == 0
    assert gearcache.prewarm(build(name, (4, n)), dry_run=True).is_complete
    cached = cached_method(net, name)
    for size in GEARS:
        x = torch.ones(size, 8)
        assert torch.equal(cached(x, n), getattr(net, name)(x, n))
    assert cached.stats.compiles == 0


def test_a_call_of_its_own_is_missing_at_a_gear_that_another_one_excludes(cache_dir: Path) -> None:
    gearcache.prewarm(build("unequal", (8, 5)))
    look = gearcache.prewarm(build("unequal", (8, 2)), dry_run=True)
    assert look.entries[0].missing == ["x.size(0)=2"]
    cached = cached_method(Net(), "unequal")
    compiles = []
    for size in (8, 4, 2):
        cached(torch.ones(size, 8), 2)
        compiles.append(cached.stats.compiles)
    assert compiles == [0, 0, 1], "what was said to be missing"


class Pair(nn.Module):
    def joined(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y if x.size(0) == y.size(0) else torch.cat([x, y])


def test_a_call_at_a_gear_that_another_trace_excludes_is_not_ready(cache_dir: Path) -> None:
    """A trace that adds the two has no gear of different sizes."""
    config = strict_config()
    config.inference_config.dynamic_gears_merge_policy = "product"

    def function() -> None:
        cached: Any = gearcache.cache_compile(Pair().joined, gears={"x": {0: [2, 4]}, "y": {0: [2, 4]}}, config=config)
        for sizes in calls:
            cached.warm(*(torch.ones(size, 3) for size in sizes))

    calls = [(4, 4)]
    gearcache.prewarm(function)
    assert gearcache.prewarm(function, dry_run=True).is_complete
    calls = [(4, 4), (2, 4)]
    look = gearcache.prewarm(function, dry_run=True)
    assert look.entries[0].missing == ["x.size(0)=2, y.size(0)=4"]
    gearcache.prewarm(function)
    assert gearcache.prewarm(function, dry_run=True).is_complete


SMALL = {"x": {0: [1, 2, 4]}}


class Sized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def cut(self, x: Tensor, n: int) -> Tensor:
        return self.linear(x)[:, :n]

    def masked(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.linear(x) * mask + x.size(1)


def warmed(name: str, *arguments: tuple[Any, ...]) -> Callable[[], None]:
    def function() -> None:
        torch.manual_seed(0)
        method: Any = gearcache.cache_compile(getattr(Sized(), name), gears=SMALL, dynamic=None, config=strict_config())
        for each in arguments:
            method.warm(*each)

    return function


def rows(batch: int, length: int) -> Tensor:
    return torch.ones(batch, length, 8)


def test_a_call_of_another_int_or_size_is_not_ready(cache_dir: Path) -> None:
    first, second = (rows(2, 3), 2), (rows(2, 3), 1)
    stored = gearcache.prewarm(warmed("cut", first))
    assert sum(len(entry.compiled) for entry in stored.entries) == 3
    for other, ending, reason in (
        (second, ", graph 2", "`n`: constant was 2, is now 1"),
        ((rows(2, 5), 2), ", x.size(1)=5", "`x.size(1)` is 5, its graph is for 3"),
    ):
        look = gearcache.prewarm(warmed("cut", first, other), dry_run=True)
        assert not look.is_complete
        (entry,) = look.entries
        assert entry.missing == [f"x.size(0)={size}{ending}" for size in (1, 2, 4)]
        assert next(iter(entry.reasons.values())) == reason
    again = gearcache.prewarm(warmed("cut", first, second))
    assert (again.is_complete, again.compiled) == (True, 3)
    assert gearcache.prewarm(warmed("cut", first, second), dry_run=True).is_complete


def test_dims_that_follow_a_gear_do_not_count(cache_dir: Path) -> None:
    """Prewarmed at one gear, looked up at another: the mask has another size, too."""
    gearcache.prewarm(warmed("masked", (rows(2, 3), torch.ones(2, 1, 8))))
    for batch in (1, 2, 4):
        function = warmed("masked", (rows(batch, 3), torch.ones(batch, 1, 8)))
        assert gearcache.prewarm(function, dry_run=True).is_complete
        report = gearcache.prewarm(function)
        assert [list(entry.compiled) for entry in report.entries] == [[]]
