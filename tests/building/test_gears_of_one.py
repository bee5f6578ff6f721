"""Gears in which a dim has size 1: each is traced at its own sizes, whichever call comes first."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.options import InferenceConfig
from tests.support.scenarios import strict_config

SIZES = list(itertools.product((1, 2), (1, 2)))


class Broadcast(nn.Module):
    def outer(self, x: Tensor, y: Tensor) -> Tensor:
        return x.unsqueeze(1) * y.unsqueeze(0)

    def apart(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.sum(0), y.mean(0)

    def masked(self, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        return (x + y) * mask


def _cached(name: str, folder: Path) -> tuple[Any, Any]:
    net = Broadcast()
    config = strict_config(inference_config=InferenceConfig("product"))
    gears = {"x": {0: [1, 2]}, "y": {0: [1, 2]}}
    return net, gearcache.cache_compile(getattr(net, name), gears=gears, cache_dir=folder, config=config)


@pytest.mark.parametrize(("name", "first"), [("outer", (1, 2)), ("apart", (2, 2))], ids=str)
def test_every_gear_answers_as_eager_whichever_call_is_first(
    cache_dir: Path, name: str, first: tuple[int, int]
) -> None:
    net, cached = _cached(name, cache_dir / "cache")
    for rows in (first, *SIZES):
        x, y = torch.randn(rows[0], 3), torch.randn(rows[1], 3)
        torch.testing.assert_close(cached(x, y), getattr(net, name)(x, y), rtol=0, atol=0)
    assert len(cached.stats.gears) == len(SIZES)


@pytest.mark.parametrize("first", [(1, 2), (2, 2)], ids=str)
def test_an_argument_that_follows_a_gear_of_one_is_served_in_later_processes_too(
    cache_dir: Path, first: tuple[int, int]
) -> None:
    _, at_once = _cached("masked", cache_dir / "cache")
    for rows in (first, *SIZES):
        net, later = _cached("masked", cache_dir / "cache")
        x, y, mask = torch.randn(rows[0], 3), torch.randn(rows[1], 3), torch.randn(max(rows), 3)
        for cached in (at_once, later):
            torch.testing.assert_close(cached(x, y, mask), net.masked(x, y, mask), rtol=0, atol=0)
