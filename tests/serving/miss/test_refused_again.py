"""A call that was refused is refused again without a trace, until something has changed or an attempt is due."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import CaptureError
from gearcache.serving.miss import refused_calls as refused
from tests.support.scenarios import strict_config


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.child = torch.nn.Linear(4, 4)

    def run(self, x: Tensor) -> Tensor:
        print("no graph")
        return x * 2

    def by_child(self, x: Tensor) -> Tensor:
        if self.child.training:
            print("no graph")
        return x * 2


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused, "PATIENCE", 1e6)


def test_the_second_like_call_is_not_traced(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Net().run, config=strict_config())
    for size in (3, 3, 3):
        with pytest.raises(CaptureError, match="cannot be cached") as caught:
            cached(torch.ones(size))
    assert cached.stats.traces == 1
    if hasattr(caught.value, "add_note"):  # since Python 3.11
        assert "a like call was refused before" in "".join(caught.value.__notes__)
    with pytest.raises(CaptureError):
        cached(torch.ones(3, 4))
    assert cached.stats.traces == 2


def test_after_a_refresh_or_when_an_attempt_is_due_it_is_traced(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = gearcache.cache_compile(Net().run, config=strict_config())
    for traces in (1, 2, 3):
        with pytest.raises(CaptureError):
            cached(torch.ones(3))
        assert cached.stats.traces == traces
        if traces == 1:
            cached.refresh()
            monkeypatch.setattr(refused, "PATIENCE", 0.0)


def test_what_the_method_sees_otherwise_is_traced(cache_dir: Path) -> None:
    net = Net()
    cached = gearcache.cache_compile(net.by_child, config=strict_config())
    for _ in range(2):
        with pytest.raises(CaptureError):
            cached(torch.ones(3))
    net.child.eval()
    assert torch.equal(cached(torch.ones(3)), torch.full((3,), 2.0))


class Decoder(nn.Module):
    """A decode step with a cache of 16 positions; torch rejects what lies beyond."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("states", torch.zeros(16, 8))

    def decode(self, x: Tensor, start_pos: int) -> Tensor:
        return self.linear(x) + self.states[start_pos]


REJECTED: list[tuple[Any, Any]] = [(torch.ones(1, 8), position) for position in range(16, 30)]
REJECTED += [(torch.ones(1, size), 3) for size in range(1, 5)] + [("x", 3), (torch.ones(1, 8), "a"), (None, 3)]


def test_calls_that_the_method_rejects_cost_few_traces(cache_dir: Path) -> None:
    method = Decoder().decode
    cached: Any = gearcache.cache_compile(method, config=strict_config(), dynamic=True)
    for _ in ("as a first call", "beside calls that are served"):
        for arguments in REJECTED:
            with pytest.raises((IndexError, RuntimeError, TypeError)) as expected:
                method(*arguments)
            with pytest.raises(type(expected.value)) as raised:
                cached(*arguments)
            assert str(raised.value) == str(expected.value)
        traces = cached.stats.traces
        assert traces <= 12
        x = torch.ones(1, 8)
        for position in (3, 3, 3, 5, 5, 7, 7):
            assert torch.equal(cached(x, position), method(x, position))
    assert cached.stats.calls > 0
    assert cached.stats.eager_reasons["exception"] >= 2 * len(REJECTED)
