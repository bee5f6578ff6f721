"""Functions that Dynamo does not go into: they run when the graph is recorded, so all that they reach is compared."""

from __future__ import annotations

import collections
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn

import gearcache
from gearcache.errors import CaptureError
from tests.support.scenarios import strict_config

SHIFT = 1.0


def helper(x: Tensor) -> Tensor:
    return x * 2


def other_helper(x: Tensor) -> Tensor:
    return x * 3


@torch.compiler.allow_in_graph
def allowed(x: Tensor) -> Tensor:
    return helper(x) + SHIFT


@torch._dynamo.nonstrict_trace
def nonstrict(x: Tensor) -> Tensor:
    return helper(x) + SHIFT


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = [torch.nn.functional.relu]

    def in_graph(self, x: Tensor) -> Tensor:
        return allowed(x).sum(1)

    def not_strict(self, x: Tensor) -> Tensor:
        return nonstrict(x).sum(1)

    def held(self, x: Tensor) -> Tensor:
        return self.kept[0](x).sum(1)


def served(net: Net, name: str, folder: Path) -> int:
    """Compare a call with eager; return the misses."""
    x = torch.arange(-4.0, 4.0).view(2, 4)
    method = getattr(net, name)
    cached = gearcache.cache_compile(method, cache_dir=folder, dynamic=False, config=strict_config())
    assert torch.equal(cached(x), method(x))
    return int(cached.stats.misses)


@pytest.mark.parametrize(
    ("name", "changed", "value"), [("in_graph", "helper", other_helper), ("not_strict", "SHIFT", 2.0)]
)
def test_what_an_untraced_function_uses_is_compared(
    name: str, changed: str, value: Any, cache_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    assert [served(Net(), name, cache_dir) for _ in range(2)] == [1, 0]
    monkeypatch.setitem(globals(), changed, value)
    with caplog.at_level("INFO", logger="gearcache"):
        assert [served(Net(), name, cache_dir) for _ in range(2)] == [1, 0]
    assert "which the graph holds untraced, or what it uses was changed" in caplog.text


def test_an_untraced_function_is_found_wherever_it_lies(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    net.kept = [allowed]
    assert [served(net, "held", cache_dir) for _ in range(2)] == [1, 0]
    monkeypatch.setitem(globals(), "helper", other_helper)
    assert served(net, "held", cache_dir) == 1
    net.kept = [torch.nn.functional.relu]
    assert served(net, "held", cache_dir) == 1


def test_an_untraced_function_that_uses_what_cannot_be_compared_is_refused(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unknown:
        def __call__(self, x: Tensor) -> Tensor:
            return x

    monkeypatch.setitem(globals(), "helper", Unknown())
    with pytest.raises(CaptureError, match="Unknown"):
        served(Net(), "in_graph", cache_dir)


def test_what_an_untraced_function_reads_is_watched_between_calls(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, x = Net(), torch.randn(2, 4)
    cached = gearcache.cache_compile(net.in_graph, config=strict_config())
    for shift in (1.0, 5.0, 1.0):
        monkeypatch.setattr(sys.modules[__name__], "SHIFT", shift)
        assert torch.equal(cached(x), net.in_graph(x))


class Steps(collections.OrderedDict[str, float]):
    pass


class Ordered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = Steps(a=2.0, b=3.0)

    def run(self, x: Tensor) -> Tensor:
        for value in self.steps.values():
            x = x * 2 + value
        return x


def test_the_order_of_a_subclass_of_an_ordered_dictionary_is_watched(cache_dir: Path) -> None:
    net, x = Ordered(), torch.randn(2, 4)
    cached = gearcache.cache_compile(net.run, config=strict_config())
    assert torch.equal(cached(x), net.run(x))
    net.steps.move_to_end("a")
    assert torch.equal(cached(x), net.run(x))
