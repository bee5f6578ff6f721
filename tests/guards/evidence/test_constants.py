"""Constants as plain data: equal only when value and type are."""

from __future__ import annotations

import enum
import itertools
from typing import Any

import torch
from msgspec import msgpack

from gearcache.guards.access import Access, Scope, Walker
from gearcache.guards.evidence.checks import Check, observe
from gearcache.guards.evidence.constants import to_plain


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Number(int):
    pass


DIFFERENT: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    0.0,
    -0.0,
    1.0,
    float("nan"),
    float("inf"),
    1j,
    2**70,
    "",
    "1",
    b"1",
    (),
    [],
    (1,),
    (True,),
    (1.0,),
    [1],
    {1: 2},
    {True: 2},
    {1, 2},
    frozenset({1, 2}),
    slice(1, 2),
    range(1, 2),
    torch.float32,
    torch.float64,
    torch.strided,
    torch.device("cpu"),
    torch.Size([1]),
    Color.RED,
    Color.BLUE,
    ...,
    NotImplemented,
    torch.relu,
    torch.nn.Linear,
    Number(1),
    list[int],
]
ROOT = Access(("argument", "value"))


def _holds(check: Check, value: Any) -> bool:
    return check.failure(Walker(Scope({"value": value}, {}))) is None


def test_no_two_different_constants_pass_each_other_s_check() -> None:
    checks = [observe("constant", ROOT, value) for value in DIFFERENT]
    stored = [Check.from_plain(msgpack.decode(msgpack.encode(check.to_plain()))) for check in checks]
    for left, right in itertools.product(range(len(DIFFERENT)), repeat=2):
        for check in (checks[right], stored[right]):
            assert _holds(check, DIFFERENT[left]) == (left == right), f"{DIFFERENT[left]!r} for {DIFFERENT[right]!r}"


def test_functions_of_one_name_are_told_apart_by_their_code() -> None:
    first, same, other = lambda x: x * 2, lambda x: x * 2, lambda x: x * 3
    assert to_plain(first)[0] == "function"
    assert to_plain((1, first)) == to_plain((1, same))
    assert to_plain((1, first)) != to_plain((1, other))
