"""A call outside all gears: a dry run says what the prewarm would make of it, and what a server would answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import GearSpecError, UnknownGear
from tests.support.scenarios import strict_config


class Net(nn.Module):
    def doubled(self, x: Tensor) -> Tensor:
        return x * 2

    def halved(self, x: Tensor) -> tuple[Tensor, Any]:
        return x * 2, x.chunk(2)

    def branching(self, x: Tensor) -> Tensor:
        return x * 7 if x.size(0) == 2 else x * 8

    def compared(self, x: Tensor) -> tuple[Tensor, bool]:
        return x * 2, x.size(0) > 3

    def even(self, x: Tensor) -> tuple[Tensor, bool]:
        return x * 2, x.size(0) % 2 == 0


def method(name: str, on_miss: str) -> Any:
    pad_values = {"x": 0} if on_miss == "pad" else {}
    config = strict_config(on_miss=on_miss, pad_values=pad_values)
    return gearcache.cache_compile(getattr(Net(), name), gears={"x": {0: [2, 4, 6]}}, config=config)


def calls(on_miss: str, *sizes: int) -> Callable[[], None]:
    def function() -> None:
        cached = method("doubled", on_miss)
        for size in sizes:
            cached.warm(torch.ones(size, 4))

    return function


def test_what_the_server_would_refuse_is_not_ready(cache_dir: Path) -> None:
    report = gearcache.prewarm(calls("raise", 3, 2))
    assert (report.failed, report.compiled) == (1, 3), "a call that fails does not end the others"
    with pytest.raises(UnknownGear):
        method("doubled", "raise")(torch.ones(3, 4))
    look = gearcache.prewarm(calls("raise", 2, 3), dry_run=True)
    assert not look.is_complete
    (failure,) = look.entries[0].failed.values()
    assert "outside all gears: x.size(0)=3" in failure


def test_a_graph_of_the_calls_own_size_is_missing_until_it_is_made(cache_dir: Path) -> None:
    gearcache.prewarm(calls("compile", 2))
    look = gearcache.prewarm(calls("compile", 2, 3), dry_run=True)
    assert look.entries[0].missing == ["x.size(0)=3"]
    assert gearcache.prewarm(calls("compile", 2, 3)).compiled == 1
    assert gearcache.prewarm(calls("compile", 2, 3), dry_run=True).is_complete


@pytest.mark.parametrize("on_miss", ["eager", "pad"])
def test_what_needs_no_graph_of_its_own_is_ready(on_miss: str, cache_dir: Path) -> None:
    gearcache.prewarm(calls(on_miss, 2))
    assert gearcache.prewarm(calls(on_miss, 2, 3), dry_run=True).is_complete


@pytest.mark.parametrize(
    ("size", "reason"), [(9, "gear x.size(0)=6 is smaller than 9"), (0, "serves no call of size 0")]
)
def test_what_cannot_be_padded_is_not_ready(size: int, reason: str, cache_dir: Path) -> None:
    gearcache.prewarm(calls("pad", 2))
    with pytest.raises(UnknownGear, match=re.escape(reason)):
        method("doubled", "pad")(torch.ones(size, 4))
    look = gearcache.prewarm(calls("pad", 2, size), dry_run=True)
    assert not look.is_complete
    (name, failure), *others = look.entries[0].failed.items()
    assert (name, others) == ("call 2", [])
    assert reason in failure


def test_what_needs_graphs_for_its_strides_is_not_ready_to_be_padded(cache_dir: Path) -> None:
    def function() -> None:
        cached = method("doubled", "pad")
        cached.warm(torch.ones(2, 4))
        if is_strided:
            cached.warm(torch.ones(4, 3).t())

    is_strided = False
    gearcache.prewarm(function)
    is_strided = True
    assert not gearcache.prewarm(function, dry_run=True).is_complete
    assert gearcache.prewarm(function).is_complete
    assert gearcache.prewarm(function, dry_run=True).is_complete
    cached = method("doubled", "pad")
    assert torch.equal(cached(torch.ones(4, 3).t()), torch.ones(3, 4) * 2)
    assert cached.stats.traces == 0


def test_padding_is_refused_whichever_call_comes_first(cache_dir: Path) -> None:
    """At a batch of 2, `chunk(2)` fixes the size while the graph is recorded: nothing could be padded to it."""
    cached = method("halved", "pad")
    for size in (6, 2):
        with pytest.raises(GearSpecError, match=r"x\.size\(0\) cannot be padded"):
            cached(torch.ones(size, 4))


def test_the_padded_trace_is_the_same_whichever_call_comes_first(cache_dir: Path) -> None:
    net, cached = Net(), method("branching", "pad")
    cached(torch.ones(3, 4))
    compiles = cached.stats.compiles
    for size in (2, 3, 4, 5, 6):
        x = torch.randn(size, 4)
        assert torch.equal(cached(x), net.branching(x))
    assert (compiles, cached.stats.compiles) == (3, 3)


@pytest.mark.parametrize("name, first", [("compared", 4), ("even", 3)])
def test_what_is_computed_of_a_size_is_of_the_calls_own_size(name: str, first: int, cache_dir: Path) -> None:
    """Such a result is right, or the call is refused: never that of the gear to which the call was padded."""
    net, cached = Net(), method(name, "pad")
    for size in (first, 1, 2, 3, 4, 5, 6):
        x = torch.randn(size, 4)
        expected, number = getattr(net, name)(x)
        try:
            result, found = cached(x)
        except UnknownGear:
            continue
        assert torch.equal(result, expected)
        assert (type(found), found) == (type(number), number)
    assert cached.stats.compiles >= 3
    assert not cached.stats.eager_reasons
