"""Frames survive their plain form, as msgpack brings it back."""

from __future__ import annotations

import gc
import types
import weakref
from typing import Any

import pytest
import torch
from msgspec import msgpack

from gearcache.guards.dispatch.frame import UnstorableConstant, bind_frame, decode_code, encode_code, resolve_reference

GLOBAL = 5


def _handled(value: Any) -> Any:
    try:
        return 1 / value
    except ZeroDivisionError as error:
        return type(error).__name__
    finally:
        value = None


def _constants() -> Any:
    return (
        1,
        True,
        1.0,
        -0.0,
        float("1e308") * 10,
        2**70,
        -(2**63),
        "é",
        b"\x00",
        None,
        ...,
        1j,
        (1, (2, "x")),
        3 in {3, 4},
    )


def _nested(n: int) -> Any:
    def inner(x: int) -> int:
        return x + n + GLOBAL

    return [inner(x) for x in range(n)], {x: (lambda y: y * n)(x) for x in range(n)}


def _stored(code: types.CodeType) -> Any:
    return msgpack.decode(msgpack.encode(encode_code(code)))


@pytest.mark.parametrize(("function", "calls"), [(_handled, [(0,), (4,)]), (_constants, [()]), (_nested, [(3,)])])
def test_a_function_does_the_same_after_a_round_trip(function: Any, calls: list[Any]) -> None:
    again = bind_frame(_stored(function.__code__), {}, function)
    assert again.__code__ == function.__code__
    for given in calls:
        assert repr(again(*given)) == repr(function(*given))


@pytest.mark.parametrize(
    "value",
    [
        torch.float16,
        torch.device("cpu"),
        torch.Size([1, 2]),
        slice(1, None, 2),
        frozenset({1, "a"}),
        float("inf"),
        complex(1, -0.0),
    ],
    ids=lambda value: type(value).__name__,  # `repr` of a set has any order
)
def test_a_constant_of_a_frame_survives(value: Any) -> None:
    code = (lambda: None).__code__.replace(co_consts=(value,))
    again = decode_code(_stored(code), {})
    # `repr` tells -0.0 from 0.0, but the order in a set is any.
    assert again.co_consts == (value,) if isinstance(value, frozenset) else repr(again.co_consts) == repr((value,))
    assert type(again.co_consts[0]) is type(value)


def test_what_has_no_plain_form_is_refused_and_references_stand_for_modules_objects_and_builtins() -> None:
    code = (lambda: None).__code__.replace(co_consts=(object(),))
    with pytest.raises(UnstorableConstant, match=r"builtins\.object"):
        encode_code(code)
    assert resolve_reference("module", "torch.nn") is torch.nn
    assert resolve_reference("object", "torch.nn.modules.linear:Linear") is torch.nn.Linear
    assert resolve_reference("builtins", "")["len"] is len
    assert resolve_reference("module", "torch._dynamo.utils").__name__ == "gearcache.guards.dispatch.frame_helpers"
    with pytest.raises(ValueError, match="unknown reference kind"):
        resolve_reference("pickle", "x")


OFFSET = 10


def test_helpers_are_kept_apart_and_go_when_the_frame_dies() -> None:
    def method() -> Any:
        return helper() + OFFSET  # type: ignore[name-defined]  # noqa: F821

    helpers = [lambda: 1, lambda: 2]
    plain = encode_code(method.__code__)
    first, second = (bind_frame(plain, {"helper": helper}, method) for helper in helpers)  # type: ignore[arg-type]
    gone = weakref.ref(helpers[0])
    helpers.clear()
    gc.collect()
    assert (first(), second()) == (11, 12)
    del first, second
    gc.collect()
    assert not any(name.startswith("_gearcache ") for name in globals())
    assert gone() is None
