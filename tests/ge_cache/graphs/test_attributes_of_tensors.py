"""Attributes of a tensor that are a new tensor at each read (`x.T`, `c.real`): as many objects as in eager."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import CaptureError
from tests.support.scenarios import strict_config


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(16.0).reshape(4, 4))

    def parts(self, x: Tensor, y: Tensor) -> Any:
        c = torch.complex(x, y)
        return c.real, c.imag, c.real, c.H.sum(), x.real, x.real is x, x.real is y.real

    def conjugate(self, x: Tensor, y: Tensor) -> Any:
        return x.H

    def compared(self, x: Tensor, y: Tensor) -> Any:
        once = x.T
        return (
            once,
            once,
            x.T,
            self.weight.T,
            self.weight.T,
            once is x.T,
            x.T is y.T,
            x.data is x.data,
            once in {once: 1},
            x.T in {once: 1},
        )

    def written(self, x: Tensor, y: Tensor) -> Any:
        x.T.add_(1)
        y.data.mul_(2)
        return x.T, y.data, y.data, x + y


def _seen(result: Any, given: tuple[Tensor, ...], net: Net) -> Any:
    tensors = [item for item in (*result, *given, net.weight) if isinstance(item, Tensor)]
    return (
        [(item.dtype, item.stride(), item.tolist()) if isinstance(item, Tensor) else item for item in result],
        [[left is right for left in tensors] for right in tensors],
        [[left.data_ptr() == right.data_ptr() for left in tensors] for right in tensors],
        [item.tolist() for item in given],
    )


@pytest.mark.parametrize(
    ("name", "order"), [("parts", ("two", "one")), ("compared", ("one", "two")), ("written", ("two", "one"))]
)
def test_each_read_is_a_tensor_of_its_own(name: str, order: tuple[str, str], cache_dir: Path) -> None:
    for relaunched in (False, True):
        net = Net()
        cached: Any = gearcache.cache_compile(getattr(net, name), config=strict_config())
        for kind in (*order, *order):
            found = []
            for run in (getattr(net, name), cached):
                x, y = (torch.arange(16.0).reshape(4, 4) + number for number in range(2))
                given = (x, x) if kind == "one" else (x, y)
                with torch.no_grad():
                    found.append(_seen(run(*given), given, net))
            assert found[0] == found[1]
        assert cached.stats.eager_calls == 0
        assert cached.stats.traces == (0 if relaunched else 2)


def test_a_lazy_conjugate_is_refused_as_a_graph_makes_none(cache_dir: Path) -> None:
    net, x = Net(), torch.ones(2, 2, dtype=torch.complex64)
    cached = gearcache.cache_compile(net.conjugate, config=strict_config())
    words = "output 0 is a lazy conjugate or negative view: return its `.resolve_conj().resolve_neg()`"
    with pytest.raises(CaptureError, match=re.escape(words)):
        cached(x, x)
