"""A dynamic graph computes every address from its free sizes: whatever else is symbolic must be checked.

With the `eager` backend a wrong layout would still give the right result, so these tests ask which graph ran.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import gearcache
from tests.support.scenarios import strict_config


class Net(torch.nn.Module):
    def added(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def doubled(self, x: Tensor) -> Tensor:
        return x * 2


def _cached(method: Any) -> Any:
    return gearcache.cache_compile(method, config=strict_config())


def test_dims_that_the_trace_proved_equal_are_compared(cache_dir: Path) -> None:
    cached = _cached(Net().added)
    cached(torch.ones(4, 3), torch.ones(4, 3))
    cached(torch.ones(6, 5), torch.ones(6, 5))
    assert cached.stats.compiles == 1
    x, y = torch.randn(6, 3), torch.randn(1, 3)
    assert torch.equal(cached(x, y), x + y)
    assert cached.stats.compiles == 2, "a broadcast call needs a graph of its own"
    with pytest.raises(RuntimeError, match="size of tensor a"):  # as eager
        cached(torch.randn(6, 3), torch.randn(5, 3))


def test_strides_that_follow_the_sizes_are_compared(cache_dir: Path) -> None:
    cached = _cached(Net().doubled)
    cached(torch.ones(4, 3))
    x = torch.randn(6, 9)[:, :5]
    found = cached(x)
    assert torch.equal(found, x * 2)
    assert found.stride() == (x * 2).stride()
    assert cached.stats.compiles == 2, "a part of a larger tensor needs a graph of its own"
    assert cached(torch.ones(5, 2)).stride() == (2, 1)
    assert cached.stats.compiles == 2
