"""What `.refresh()` sees: everything that may change under a loaded method, checked again as at a load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import strict_config


class Child(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return self.activate(x)

    def activate(self, x: Tensor) -> Tensor:
        return torch.relu(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.child = Child()
        self.linear = nn.Linear(4, 4)
        self.scale = 2.0

    def run(self, x: Tensor) -> Tensor:
        return self.child(self.linear(x)) * self.scale


def _attribute(net: Net, patch: pytest.MonkeyPatch) -> None:
    net.scale = 5.0


def _forward_of_torch(net: Net, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nn.Linear, "forward", lambda self, x: x * 4)


def _weights(net: Net, patch: pytest.MonkeyPatch) -> None:
    net.linear.weight = nn.Parameter(torch.randn(4, 4))


@pytest.mark.parametrize("change", [_attribute, _forward_of_torch, _weights])
def test_a_change_is_seen_after_refresh_and_both_ways_are_kept(
    cache_dir: Path, change: Callable[[Net, pytest.MonkeyPatch], None]
) -> None:
    """`test_changes.py` has more changes, which the next call sees without `.refresh()`."""
    net, x = Net(), torch.randn(2, 4)
    cached = gearcache.cache_compile(net.run, config=strict_config())
    with torch.no_grad():
        assert torch.equal(cached(x), net.run(x))
        with pytest.MonkeyPatch.context() as patch:
            change(net, patch)
            cached.refresh()
            expected = net.run(x)
            assert torch.equal(cached(x), expected)
            traces = cached.stats.traces
            again = gearcache.cache_compile(net.run, config=strict_config())
            assert torch.equal(again(x), expected)
            assert again.stats.traces == 0
        assert traces == (1 if change is _weights else 2)
        untouched = Net()
        third = gearcache.cache_compile(untouched.run, config=strict_config())
        assert torch.equal(third(x), untouched.run(x))
        assert third.stats.traces == 0
