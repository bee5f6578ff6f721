"""A member of an enumeration at two places: each place is compared, whichever member was there in the trace."""

from __future__ import annotations

import enum
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from tests.support.scenarios import strict_config


class Mode(enum.Enum):
    A = 1
    B = 2


class Named(str, enum.Enum):
    A = "a"
    B = "b"


class Net(torch.nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind, self.mode = kind, kind.A

    def identical(self, x: torch.Tensor, p: Any, q: Any) -> torch.Tensor:
        return x + (50 if p is Mode.A else 70) + (1 if q is Mode.A else 2)

    def equal(self, x: torch.Tensor, p: Any, q: Any) -> torch.Tensor:
        return x + (50 if p == Named.A else 70) + (1 if q == Named.B else 2)

    def held(self, x: torch.Tensor, p: Any, q: Any) -> torch.Tensor:
        return x + (50 if p is Mode.A else 70) + (1 if self.mode is Mode.A else 2)


@pytest.mark.parametrize(("name", "kind"), [("identical", Mode), ("equal", Named), ("held", Mode)])
def test_a_member_at_two_places_is_compared_at_both(name: str, kind: Any, cache_dir: Path) -> None:
    pairs = list(itertools.product(kind, kind))
    for number, order in enumerate((pairs, [*pairs[1:], pairs[0]])):  # one member at both places comes first, or two
        net = Net(kind)
        method = getattr(net, name)
        cached: Any = gearcache.cache_compile(method, config=strict_config(), cache_dir=cache_dir / str(number))
        for p, q in order:
            net.mode = q
            assert torch.equal(cached(torch.zeros(1), p, q), method(torch.zeros(1), p, q)), (order, p, q)
