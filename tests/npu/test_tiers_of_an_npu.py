"""GE graphs come through tiers as any others do; GE's own files beside an entry stay on the host that made them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.cache.remote.outbox import outbox


class Sum(nn.Module):
    def both(self, x: Tensor, y: Tensor) -> Tensor:
        return x * 2 + y.sum()


@pytest.mark.parametrize("ge_cache", [False, True])
def test_what_one_host_compiled_another_fetches(tmp_path: Path, ge_cache: bool) -> None:
    hosts: list[Any] = []
    for name in ("a", "b"):
        cached = gearcache.cache_compile(
            Sum().both,
            config=gearcache.CompilerConfig(strict=True),
            cache_dir=tmp_path / name,
            gears={"x": {0: [2, 4]}},
            ge_cache=ge_cache,
            remotes=f"folder:{tmp_path}?unsigned=1",
        )
        for rows in (2, 4):
            x, y = torch.randn(rows, 3).to("npu"), torch.randn(4).to("npu")
            torch.testing.assert_close(cached(x, y).cpu(), x.cpu() * 2 + y.cpu().sum())
        assert outbox().flush(30) == 0
        hosts.append(cached)
        assert bool(list((tmp_path / name).rglob("*.om"))) == ge_cache, "an output of GE"
    assert [host.stats.compiles for host in hosts] == [2, 0]
    assert hosts[1].stats.fetches == 2
