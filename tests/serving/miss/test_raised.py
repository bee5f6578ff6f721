"""What a method raises comes out as it is: at a first call, after a relaunch, and where no graph serves the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import CaptureError, MethodRaises
from gearcache.serving.miss import refused_calls as refused
from tests.support.scenarios import strict_config

X = torch.ones(2, 4)


class Wrong(Exception):
    def __init__(self, text: str, size: int) -> None:
        super().__init__(text)
        self.size = size


@torch.library.custom_op("gearcache_raised::wrong", mutates_args=())
def wrong(x: Tensor) -> Tensor:
    raise Wrong("of an operator", x.shape[0])


@wrong.register_fake
def _(x: Tensor) -> Tensor:
    raise Wrong("of an operator", int(x.shape[0]))


class Net(nn.Module):
    """Each value of `how` is a way to raise; None raises nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.sizes, self.limit = nn.Linear(4, 4), {"a": 1}, 1
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor, how: str | None = None) -> Tensor:
        if how == "own":
            raise Wrong("mine", x.shape[0])
        if how == "sizes":
            x @ torch.ones(7, 7)
        if how == "operator":
            wrong(x)
        if how == "layer":
            self.attention(torch.ones(1, 2, 7), x, x)
        return self.linear(x)  # type: ignore[no-any-return]

    def limited(self, x: Tensor) -> Tensor:
        if self.sizes["a"] > 1:
            raise Wrong("too many", self.sizes["a"])
        return self.linear(x)  # type: ignore[no-any-return]

    def telling(self, x: Tensor) -> Tensor:
        print("no graph")
        if self.limit > 1:
            raise ValueError("mine")
        return x * 2

    def caught(self, x: Tensor) -> Tensor:
        self.limit += 1
        try:
            print("no graph")
            raise ValueError("mine")
        except ValueError:
            return x * 2


HOWS = ["own", "sizes", "operator", "layer"]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(refused, "PATIENCE", 1e6)
    with torch.no_grad():
        yield


def _raised(call: Callable[..., Any], *arguments: Any) -> tuple[type, str, dict[str, Any]]:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call(*arguments)
    error = caught.value
    assert error.__context__ is None, "no error of ours stands above it"
    return type(error), str(error), vars(error)


@pytest.mark.parametrize("how", HOWS)
def test_what_a_cached_method_raises_is_what_eager_raises(how: str, cache_dir: Path) -> None:
    expected = _raised(Net(), X, how)
    cold = gearcache.cache_compile(Net().forward, config=strict_config())
    for _ in range(2):  # the first one may import what the second one then sees
        assert _raised(cold, X, how) == expected
    traces = cold.stats.traces
    assert _raised(cold, X, how) == expected
    assert cold.stats.traces == traces <= 4, "a like call is not traced again"
    with pytest.raises(MethodRaises) as told:
        cold.warm(X, how)
    assert "was run" not in str(told.value), "nothing ran"


def test_a_relaunch_raises_it_too_where_no_graph_serves_the_call(cache_dir: Path) -> None:
    gearcache.attach(Net(), config=strict_config())(X)
    net = Net()
    relaunched = gearcache.attach(net, config=strict_config())
    relaunched(X)
    assert relaunched.stats.traces == 0
    for how in ("own", "sizes", "layer"):
        assert _raised(net, X, how) == _raised(Net(), X, how)


def test_a_method_that_raises_no_more_runs_and_is_traced_at_the_next_call(cache_dir: Path) -> None:
    net = Net()
    net.sizes["a"] = 2
    cached = gearcache.cache_compile(net.limited, config=strict_config())
    for _ in range(2):
        with pytest.raises(Wrong, match="too many"):
            cached(X)
    net.sizes["a"] = 1
    for _ in range(3):
        assert torch.equal(cached(X), net.limited(X))
    assert (cached.stats.traces, cached.stats.compiles) == (2, 1)


def test_a_construct_that_cannot_be_served_stays_a_refusal_and_nothing_runs(cache_dir: Path) -> None:
    net = Net()
    net.limit = 2
    for method in (net.telling, net.caught):
        cached = gearcache.cache_compile(method, config=strict_config())
        for _ in range(2):
            with pytest.raises(CaptureError, match="print") as caught:
                cached(X)
            assert not isinstance(caught.value, MethodRaises)
    assert net.limit == 2
