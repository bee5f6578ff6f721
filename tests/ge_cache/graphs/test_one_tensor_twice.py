"""One tensor for two arguments of a method with gears: a variant of its own, in whatever order the calls come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import UnknownGear
from tests.support.scenarios import strict_config


class Net(nn.Module):
    def sums(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y * 2

    def writes(self, x: Tensor, y: Tensor) -> Tensor:
        y.mul_(2)
        return x + y


@pytest.mark.parametrize(("name", "order"), [("sums", ("one", "two")), ("writes", ("two", "one"))])
def test_each_call_equals_eager(name: str, order: tuple[str, str], cache_dir: Path) -> None:
    gears = {path: {0: [2, 4]} for path in "xy"}
    for relaunched in (False, True):
        net = Net()
        cached: Any = gearcache.cache_compile(getattr(net, name), gears=gears, config=strict_config())
        for rows in (2, 4):
            for kind in order:
                x = torch.randn(rows, 3)
                y = x if kind == "one" else torch.randn(rows, 3)
                given = (x.clone(), y.clone()) if kind == "two" else (x.clone(),) * 2
                assert torch.equal(cached(*given), getattr(net, name)(x, y))
                assert torch.equal(given[0], x)
                assert torch.equal(given[1], y)
        assert cached.stats.traces == (0 if relaunched else 2)
    with pytest.raises(UnknownGear, match=r"size\(0\)=3"):
        cached(z := torch.randn(3, 3), z)
