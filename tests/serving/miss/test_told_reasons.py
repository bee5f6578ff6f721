"""A miss is explained by the graph that is nearest to the call."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import strict_config


class Scaled(nn.Module):
    def __init__(self, scale: float, shift: float) -> None:
        super().__init__()
        self.scale, self.shift = scale, shift

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift


def test_only_the_nearest_of_several_stored_graphs_is_told_of(cache_dir: Path) -> None:
    def first_call(scale: float, shift: float) -> str:
        cached = gearcache.cache_compile(Scaled(scale, shift).forward, config=strict_config(), dynamic=False)
        cached(torch.ones(2))
        return str(cached.explain()).rpartition("miss: ")[2]  # the last reason, and what to do

    first_call(1.5, 1.5), first_call(2.5, 1.5)
    told_of_shift = first_call(2.5, 3.5)
    assert told_of_shift.startswith("`self.shift`: constant was 1.5, is now 3.5")
    assert "scale" not in told_of_shift
    told_of_both = first_call(7.5, 1.5)
    assert told_of_both.startswith("`self.scale` is 7.5; the 2 stored traces are for 1.5, 2.5")
