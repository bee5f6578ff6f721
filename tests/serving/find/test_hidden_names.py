"""A registered part behind an entry of the module's `__dict__` has an entry of the cache of its own."""

from __future__ import annotations

from pathlib import Path

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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x) * self.weight


def test_a_later_launch_that_hides_parts_is_served_by_a_trace_of_its_own(cache_dir: Path) -> None:
    x = torch.arange(3.0)
    for hidden in ({}, {"part": Doubling()}, {"weight": torch.full((3,), 2.0)}, {}):
        net = Net()
        net.__dict__.update(hidden)
        served = gearcache.cache_compile(net.forward, config=strict_config())
        with torch.no_grad():
            assert torch.equal(served(x), net(x))
