"""One tensor for two arguments of a method with gears: a variant of its own, in whatever order the calls come."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gearcache.errors import UnknownGear
from tests.support.launches import serve_twice


class Net(nn.Module):
    def sums(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y * 2

    def writes(self, x: Tensor, y: Tensor) -> Tensor:
        y.mul_(2)
        return x + y


@pytest.mark.parametrize(("name", "order"), [("sums", ("one", "two")), ("writes", ("two", "one"))])
def test_each_call_equals_eager(name: str, order: tuple[str, str], cache_dir: Path) -> None:
    calls: list[tuple[Tensor, ...]] = []
    for rows, kind in itertools.product((2, 4), order):
        x, y = torch.randn(rows, 3), torch.randn(rows, 3)
        calls.append((x, x) if kind == "one" else (x, y))
    first, cached = serve_twice(Net, name, calls, gears={path: {0: [2, 4]} for path in "xy"})
    assert first.stats.traces == 2
    with pytest.raises(UnknownGear, match=r"size\(0\)=3"):
        cached(z := torch.randn(3, 3), z)
