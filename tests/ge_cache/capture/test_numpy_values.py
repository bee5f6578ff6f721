"""Arrays and scalars of NumPy in a method: refused by name; torch imitates NumPy with other dtypes and classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import CaptureError
from tests.support.scenarios import strict_config

X = torch.tensor([[1.5, -2.0, 3.25], [0.1, 7.0, -0.3]])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = np.float64(0.3)
        self.table = np.array([1.0, 2.0, 4.0], dtype=np.float32)
        self.factor = float(np.sqrt(64))
        self.rows = torch.from_numpy(np.arange(3.0))


REFUSED: dict[str, Callable[[Net, Tensor], Any]] = {
    "a scalar and ints, float32 in eager and float64 in a graph": lambda net, x: x.int() * net.scale,
    "a class of a scalar, which is a float": lambda net, x: x * 2 if isinstance(net.scale, float) else x,
    "an array that becomes a tensor": lambda net, x: x * torch.from_numpy(net.table),
    "a table, float64 in eager": lambda net, x: torch.from_numpy(np.power(10000.0, -np.arange(0, 6, 2) / 8)) * x,
    "random numbers": lambda net, x: x * torch.from_numpy(np.random.rand(3)),
    "a tensor as an array": lambda net, x: (x * 1).numpy(),
}


def cached_of(function: Callable[[Net, Tensor], Any]) -> Any:
    class Own(Net):
        def forward(self, x: Tensor) -> Any:
            return function(self, x)

    return gearcache.cache_compile(Own().forward, config=strict_config(), dynamic=False)


@pytest.mark.parametrize("name", REFUSED)
def test_what_numpy_makes_is_refused_by_name(cache_dir: Path, name: str) -> None:
    cached = cached_of(REFUSED[name])
    with pytest.raises(CaptureError, match=r"NumPy.*numpy|numpy:ufunc|NumPy.*line \d+") as raised:
        cached(X)
    assert "NumPy" in str(raised.value) or "ufunc" in str(raised.value)


def test_arguments_are_refused_too(cache_dir: Path) -> None:
    class Weighted(nn.Module):
        def forward(self, x: Tensor, by: Any) -> Tensor:
            return x * by if isinstance(by, (int, float)) else x

    for by in (np.float64(2), np.ones(3)):
        cached = gearcache.cache_compile(Weighted().forward, config=strict_config(), dynamic=False)
        with pytest.raises(CaptureError, match=r"NumPy.*line \d+, in forward"):
            cached(X, by)


def test_what_was_made_a_number_or_a_tensor_before_is_served(cache_dir: Path) -> None:
    net = Net()
    cached = cached_of(lambda net, x: x / net.factor + net.rows + np.pi)
    assert torch.equal(cached(X), X / net.factor + net.rows + np.pi)
