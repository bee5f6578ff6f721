"""`filling="vouched"`: the caller guarantees what cannot be proven."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import gearcache
from gearcache.errors import GearSpecError, OptionError, UnknownGear
from tests.support.scenarios import strict_config


class FirstToken(torch.nn.Module):
    """Attention as T5 and MPNet have it, and the state of the first real token, as many sentence encoders pool."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 8)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.embedding(ids)
        scores = hidden @ hidden.transpose(1, 2) + (1 - mask[:, None].float()) * torch.finfo(torch.float32).min
        hidden = scores.softmax(-1) @ hidden
        first = mask.int().argmax(1)
        return hidden, hidden[torch.arange(ids.size(0)), first]


class Flat(torch.nn.Module):
    """Its result has a dim that no padded size is the length of."""

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return (ids * mask).flatten()


def _cached(module: torch.nn.Module, filling: str = "vouched", **options: Any) -> Any:
    batch, length = gearcache.Symbol("batch", gears=[4]), gearcache.Symbol("length", gears=[4, 8])
    config = strict_config(on_miss="pad", filling=filling, pad_values={"ids": 0, "mask": 0}, **options)
    gears = {name: {0: batch, 1: length} for name in ("ids", "mask")}
    return gearcache.cache_compile(module.forward, config=config, gears=gears)


def _call(batch: int, length: int) -> tuple[Tensor, Tensor]:
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, :1] = 0
    return torch.randint(1, 50, (batch, length)), mask


def test_a_vouched_call_gives_the_real_part_of_what_the_graph_gives(cache_dir: Path) -> None:
    model = FirstToken()
    for _ in range(2):  # the second one finds the entry
        cached = _cached(model)
        for sizes in ((3, 5), (4, 8), (2, 2)):
            call = _call(*sizes)
            torch.testing.assert_close(cached(*call), model(*call), atol=1e-6, rtol=1e-5)
    assert (cached.stats.traces, cached.stats.misses) == (0, 0)
    with pytest.raises(UnknownGear):
        cached(*_call(5, 8))


def test_a_result_whose_real_part_is_unknown_is_refused_though_vouched(cache_dir: Path) -> None:
    with pytest.raises(GearSpecError, match=r"dim 0 of output 0 is .*real part"):
        _cached(Flat())(*_call(3, 5))


def test_vouched_and_proven_calls_share_no_entry(cache_dir: Path) -> None:
    paths = set()
    for filling in ("vouched", "proven"):
        cached = _cached(Product(), filling)
        cached(*_call(3, 5))
        paths.add(cached.entry_path)
    assert len(paths) == 2


class Product(torch.nn.Module):
    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return ids * mask


def test_vouching_needs_filling(cache_dir: Path) -> None:
    with pytest.raises(OptionError, match="option `filling` is 'vouched' without filling"):
        gearcache.cache_compile(Product().forward, config=strict_config(filling="vouched"), gears={"ids": {0: [4]}})
    with pytest.raises(OptionError, match="option `filling` is 'sure'; allowed: 'proven', 'vouched'"):
        strict_config(filling="sure")
