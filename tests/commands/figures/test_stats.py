"""`gearcache stats`: rates, limits, methods, and counting anew."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gearcache
from gearcache.cache.admin.tally import count_misses
from gearcache.cache.layout import Layout
from gearcache.cache.store import DiskStore
from tests.support.commands import DECODE, PREFILL, run, run_json, store
from tests.test_events import Net, cached


def use(cache_dir: Path, key: object, times: int) -> None:
    disk = DiskStore(Layout(cache_dir))
    assert disk.use(key)
    for _ in range(times):
        disk.count_load(key)


@pytest.fixture
def counted(cache_dir: Path) -> Path:
    """Two methods: three hits and a miss of one, a hit of the other, a miss of a third without an entry."""
    for key, hits in ((DECODE, 3), (PREFILL, 1)):
        store(cache_dir, key, key.digest.encode())
        use(cache_dir, key, hits)
    for label in ("Model.decode", "Model.gone"):
        count_misses(Layout(cache_dir), label, ["absent"])
    return cache_dir


def test_rates_are_those_of_all_and_of_each_method(counted: Path) -> None:
    found = run_json("stats")
    assert (found["hits"], found["misses"], found["hit_rate"]) == (4, 2, 0.6667)
    rows = {row["method"]: (row["hits"], row["misses"], row["hit_rate"]) for row in found["methods"]}
    assert rows == {"Model.decode": (3, 1, 0.75), "Model.prefill": (1, 0, 1.0), "Model.gone": (0, 1, 0.0)}
    assert found["methods"][0]["compile_seconds_saved"] == 270.0
    text = run("stats").stdout
    assert "Hits                4 of 6 lookups, 66.7%" in text
    assert "Counted since       now, when the cache was made" in text
    (line,) = [line for line in text.splitlines() if line.startswith("Model.gone")]
    assert line.split() == ["Model.gone", "0", "0", "0", "B", "0", "1", "0.0%", "0.0", "s", "0.0", "s"]


def test_calls_count_as_hit_or_miss_and_a_prewarm_as_neither(cache_dir: Path) -> None:
    net = Net()

    def build() -> None:
        cached(net)(torch.randn(2, 4))

    assert gearcache.prewarm(build).compiled == 2
    assert gearcache.prewarm(build).present == 2
    found = run_json("stats")
    assert (found["hits"], found["misses"], found["compile_seconds_saved"]) == (0, 0, 0.0)
    build()
    assert run_json("stats")["hits"] == 1
    net.factor = 5
    build()
    assert run_json("stats")["misses_by_reason"] == {"evidence": 1}
