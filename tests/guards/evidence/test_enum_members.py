"""A member of an enumeration at two places: each place is compared, whichever member was there in the trace."""

from __future__ import annotations

import enum
import itertools
from pathlib import Path
from typing import Any

import torch

import gearcache
from tests.support.scenarios import strict_config


class Mode(enum.Enum):
    A = 1
    B = 2


class Net(torch.nn.Module):
    def run(self, x: torch.Tensor, p: Any, q: Any) -> torch.Tensor:
        return x + (50 if p is Mode.A else 70) + (1 if q is Mode.A else 2)


def test_a_member_at_two_places_is_compared_at_both(cache_dir: Path) -> None:
    pairs = list(itertools.product(Mode, Mode))
    for number, order in enumerate((pairs, [*pairs[1:], pairs[0]])):  # one member at both places comes first, or two
        cached: Any = gearcache.cache_compile(Net().run, config=strict_config(), cache_dir=cache_dir / str(number))
        for p, q in order:
            assert torch.equal(cached(torch.zeros(1), p, q), Net().run(torch.zeros(1), p, q)), (order, p, q)
