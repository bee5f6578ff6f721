"""The encoding of keys: unequal values never have equal bytes."""

from __future__ import annotations

import collections
import enum
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from gearcache.cache.keys.encoding import encode
from gearcache.errors import UnkeyableValue
from tests.support.sampled import examples


class Color(enum.Enum):
    RED = 1
    CRIMSON = 1  # noqa: PIE796
    BLUE = 2


class Paint(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    ONE = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Point(Struct, frozen=True):
    x: object
    y: object = 0


class Twin(Struct, frozen=True):
    x: object
    y: object = 0


class Loose(Struct):
    x: int = 0


Pair = collections.namedtuple("Pair", "left right")

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.integers()
    | st.floats()
    | st.sampled_from([0.0, -0.0, 1.0, ""])
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.sampled_from([*Color, *Paint, *Level, *Access])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)
        | st.builds(Point, inner)
        | st.builds(Twin, inner, inner)
    ),
    max_leaves=8,
)


def canonical(value: object) -> object:
    """What makes two values the same, told without bytes."""
    if isinstance(value, enum.Enum):
        return type(value), value
    if isinstance(value, (list, tuple)):
        return "sequence", tuple(canonical(item) for item in value)
    if isinstance(value, dict):
        return "dict", frozenset((name, canonical(item)) for name, item in value.items())
    if isinstance(value, (Point, Twin)):
        return type(value), canonical(value.x), canonical(value.y)
    if isinstance(value, float):
        return float, "nan" if value != value else struct.pack(">d", value)
    return type(value), value


@settings(max_examples=examples(100))
@given(VALUES, VALUES)
def test_two_values_share_their_bytes_only_if_they_are_the_same(left: object, right: object) -> None:
    assert (encode("c", left) == encode("c", right)) == (canonical(left) == canonical(right))


@pytest.mark.parametrize(
    "left, right",
    [
        pytest.param(1, True, id="int and bool"),
        pytest.param(1, 1.0, id="int and float"),
        pytest.param(0.0, -0.0, id="signs of zero"),
        pytest.param("1", b"1", id="str and bytes"),
        pytest.param(["ab"], ["a", "b"], id="where a text ends"),
        pytest.param([[1], 2], [[1, 2]], id="where a list ends"),
        pytest.param(Color.RED, Paint.RED, id="enums of one name"),
        pytest.param(Access.READ, Access.READ | Access.WRITE, id="combined flags"),
        pytest.param(Point(1), Twin(1), id="structs of one shape"),
        pytest.param(Point(1), {"x": 1, "y": 0}, id="struct and dict"),
    ],
)
def test_values_that_are_alike_differ(left: object, right: object) -> None:
    assert encode("c", left) != encode("c", right)


@pytest.mark.parametrize(
    "value, type_name, where",
    [
        pytest.param(object(), "object", "", id="object"),
        pytest.param({1}, "set", "", id="set"),
        pytest.param(Loose(), "Loose", "", id="struct that is not frozen"),
        pytest.param(type("Name", (str,), {})("x"), "Name", "", id="subclass of str"),
        pytest.param({"a": [0, Point({1})]}, "set", "at `a.1.x`", id="nested"),
    ],
)
def test_anything_else_is_refused_by_type_and_place(value: object, type_name: str, where: str) -> None:
    with pytest.raises(UnkeyableValue) as caught:
        encode("config", value)
    assert (caught.value.component, caught.value.type_name) == ("config", type_name)
    assert where in caught.value.detail
