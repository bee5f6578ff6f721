"""A registered part behind an entry of the module's `__dict__` has an entry of the cache of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gearcache
from tests.support.scenarios import strict_config


class Doubling(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Identity()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("table", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x) * self.weight + self.table


@pytest.mark.parametrize(
    ("name", "hiding"), [("part", Doubling()), ("weight", torch.full((3,), 2.0)), ("table", torch.full((3,), 2.0))]
)
def test_a_later_launch_that_hides_a_part_is_served_by_a_trace_of_its_own(
    cache_dir: Path, name: str, hiding: Any
) -> None:
    x = torch.arange(3.0)
    for is_hidden in (False, True, False, True):
        net = Net()
        if is_hidden:
            net.__dict__[name] = hiding
        served = gearcache.cache_compile(net.forward, config=strict_config())
        with torch.no_grad():
            assert torch.equal(served(x), net(x))
