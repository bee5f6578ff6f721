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


class OfClass(torch.nn.Module):
    """Asks for the class of a result that is its argument, as `nn.Module.__setattr__` does."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.last = torch.zeros(4)

    def instance(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if isinstance(x.contiguous(), torch.nn.Parameter) else x - 1

    def type(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return x + 1 if type(x.to(torch.float32)) is torch.nn.Parameter else x - 1

    def assigned(self, x: torch.Tensor) -> torch.Tensor:
        self.total *= 0.5
        self.total += x
        self.total = self.total.contiguous()
        self.last = x.to(torch.float32)
        return x * self.total + self.last


@pytest.mark.parametrize("name", ["instance", "type", "assigned"])
def test_the_class_of_a_result_is_that_of_the_argument_that_it_is(cache_dir: Path, name: str) -> None:
    with torch.no_grad():
        for _ in range(2):  # traced, and loaded
            ours, theirs, x = OfClass(), OfClass(), torch.arange(4.0)
            served = gearcache.cache_compile(getattr(ours, name), config=strict_config())
            for _ in range(3):
                assert torch.equal(served(x), getattr(theirs, name)(x))
            assert torch.equal(ours.total, theirs.total)
            assert list(ours._buffers) == list(theirs._buffers)
            assert (ours.last is x) == (theirs.last is x)
        assert served.stats.traces == 0
        if name != "assigned":
            with pytest.raises(CaptureError, match=r"class of a result that is `x`, a .*Parameter.*\.add_\(1\)"):
                served(torch.nn.Parameter(x))
