"""Ints that a method writes, and floats that it computes from them: as Python computes them, not as sympy does."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from tests.scenarios.numbers import Machine
from tests.support.scenarios import strict_config


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n, self.out = 0, 0.0

    def quotients(self, x: Tensor) -> Any:
        self.n += 1
        return x.double() * (self.n / 3), self.n / 7

    def equal_to_itself(self, x: Tensor) -> Any:
        self.n += 1
        return x + 1 if float(self.n) == self.n else x * 2

    def two_texts_of_one_number(self, x: Tensor) -> Any:
        self.n += 1
        self.out = (self.n / 10 + self.n / 5) - self.n / 5
        return x * 2, self.n * 1.0, self.n * 0.1 * 10

    def infinite(self, x: Tensor) -> Any:
        self.n += 1
        return x * (self.n * math.inf), self.n - math.inf


@pytest.mark.parametrize("name", [name for name in vars(Net) if name[0] != "_"])
def test_a_float_of_an_int_is_that_of_python(name: str, cache_dir: Path) -> None:
    x = torch.arange(1.0, 6.0)
    for _ in range(2):
        left, right = Net(), Net()
        cached = gearcache.cache_compile(getattr(right, name), config=strict_config())
        for start in (0, 2, 4, 2**53):
            left.n = right.n = start
            assert repr(cached(x)) == repr(getattr(left, name)(x))
            assert (left.n, left.out) == (right.n, right.out)


def test_an_int_of_more_than_64_bits_raises_what_eager_raises(cache_dir: Path) -> None:
    machine = Machine()
    cached = gearcache.cache_compile(machine.arithmetic, config=strict_config())
    cached(torch.ones(2))
    machine.position = 2**63 - 2
    with torch.no_grad(), pytest.raises(OverflowError, match="too big"):
        cached(torch.ones(2))
    assert machine.position == 2**63 - 1, "the method itself has counted, once"
