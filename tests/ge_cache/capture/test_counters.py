"""Ints that a method counts in: one variant for every value, unless a tensor or a branch depends on it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gearcache
from tests.scenarios.counters import Meter
from tests.support.scenarios import strict_config

pytestmark = pytest.mark.slow


def test_a_value_of_another_type_is_another_variant(cache_dir: Path) -> None:
    meter = Meter()
    cached = gearcache.cache_compile(meter.counting, config=strict_config())
    x = torch.randn(2, 4)
    cached(x)
    meter.calls = 1.5  # type: ignore[assignment]
    cached(x)
    assert meter.calls == 2.5
    meter.calls = 7
    cached(x)
    assert (meter.calls, type(meter.calls)) == (8, int)


def test_padded_calls_count_their_own_rows(cache_dir: Path) -> None:
    meter = Meter()
    config = strict_config(on_miss="pad", pad_values={"x": 0.0})
    cached = gearcache.cache_compile(meter.sizes, config=config, gears={"x": {0: [4]}})
    for size, rows in ((3, 5), (4, 13), (2, 17)):
        assert cached(torch.randn(size, 4))[1] == rows == meter.rows
