"""Constants as plain data: equal only when value and type are."""

from __future__ import annotations

import enum
import itertools
import re
from typing import Any

import msgpack
import pytest
import torch

from gearcache.guards.access import Access, Scope, Walker
from gearcache.guards.evidence.checks import Check, observe
from gearcache.guards.evidence.constants import NotConstant, is_identity_constant, readable, to_plain


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


@pytest.mark.parametrize("value", DIFFERENT, ids=lambda value: re.sub(r" at 0x\w+", "", repr(value)))
def test_a_constant_check_holds_for_its_value_after_storage(value: Any) -> None:
    check = observe("constant", ROOT, value)
    again = Check.from_plain(msgpack.unpackb(msgpack.packb(check.to_plain()), strict_map_key=False))
    assert _holds(check, value)
    assert _holds(again, value)


def test_no_two_different_constants_pass_each_other_s_check() -> None:
    checks = [observe("constant", ROOT, value) for value in DIFFERENT]
    for (left, _), (right, check) in itertools.permutations(zip(DIFFERENT, checks, strict=True), 2):
        assert not _holds(check, left), f"{left!r} passes for {right!r}"


@pytest.mark.parametrize("value", [object(), torch.ones(1), iter([])], ids=lambda value: type(value).__name__)
def test_what_has_no_plain_form_is_refused(value: Any) -> None:
    with pytest.raises(NotConstant):
        to_plain(value)


def test_functions_of_one_name_are_told_apart_by_their_code() -> None:
    first, same, other = lambda x: x * 2, lambda x: x * 2, lambda x: x * 3
    assert to_plain(first)[0] == "function"
    assert to_plain((1, first)) == to_plain((1, same))
    assert to_plain((1, first)) != to_plain((1, other))


def test_members_of_one_name_are_told_apart_by_their_value() -> None:
    first, same, other = (enum.Enum("Mode", {"A": value}, module="models") for value in (1.0, 1.0, 2.0))
    assert to_plain(first.A) == to_plain(same.A)
    assert to_plain(first.A) != to_plain(other.A)


def test_identity_constants_are_singletons() -> None:
    for value in (None, True, torch.float32, Color.RED, int):
        assert is_identity_constant(value)
    for value in (1, 1.0, "a", (1,)):
        assert not is_identity_constant(value)


@pytest.mark.parametrize(
    "value",
    [
        *(
            None,
            True,
            3,
            2.5,
            -0.0,
            1 << 70,
            "text",
            b"bytes",
            (),
            (1,),
            (1.0, "a"),
            [1, [True]],
            {1, 2},
            {"a": (1.5,)},
        ),
        *(torch.float32, torch.Size([2, 3]), ..., frozenset({4})),
    ],
    ids=repr,
)
def test_constants_are_shown_as_python_writes_them(value: Any) -> None:
    assert readable(to_plain(value)) == repr(value)


@pytest.mark.parametrize("odd", [["float"], ["dict", [1]], ["other", 1], ["tuple", 3], {}, ["bool", 1]], ids=repr)
def test_data_of_another_form_is_shown_as_it_is(odd: Any) -> None:
    assert readable(odd) == repr(odd)
