"""Ints that a method writes, beside the scenarios of numbers: past 64 bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gearcache
from tests.scenarios.numbers import Machine
from tests.support.scenarios import strict_config


def test_an_int_of_more_than_64_bits_raises_what_eager_raises(cache_dir: Path) -> None:
    machine = Machine()
    cached = gearcache.cache_compile(machine.arithmetic, config=strict_config())
    cached(torch.ones(2))
    machine.position = 2**63 - 2
    with torch.no_grad(), pytest.raises(OverflowError, match="too big"):
        cached(torch.ones(2))
    assert machine.position == 2**63 - 1, "the method itself has counted, once"
