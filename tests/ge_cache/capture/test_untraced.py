"""The words of a miss for a function that Dynamo does not go into; what is compared of it has rows in `tests.cases`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import strict_config


def helper(x: Tensor) -> Tensor:
    return x * 2


def other_helper(x: Tensor) -> Tensor:
    return x * 3


@torch.compiler.allow_in_graph
def allowed(x: Tensor) -> Tensor:
    return helper(x)


class Net(nn.Module):
    def run(self, x: Tensor) -> Tensor:
        return allowed(x).sum(1)


def misses(folder: Path) -> int:
    """Compare a call with eager; return the misses."""
    net, x = Net(), torch.arange(-4.0, 4.0).view(2, 4)
    cached = gearcache.cache_compile(net.run, cache_dir=folder, dynamic=False, config=strict_config())
    assert torch.equal(cached(x), net.run(x))
    return int(cached.stats.misses)


def test_a_miss_for_what_an_untraced_function_uses_says_so(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert [misses(cache_dir) for _ in range(2)] == [1, 0]
    monkeypatch.setitem(globals(), "helper", other_helper)
    with caplog.at_level("INFO", logger="gearcache"):
        assert [misses(cache_dir) for _ in range(2)] == [1, 0]
    assert "which the graph holds untraced, or what it uses was changed" in caplog.text
