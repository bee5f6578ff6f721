"""Frames survive their plain form, as msgpack brings it back."""

from __future__ import annotations

import gc
import types
import weakref
from typing import Any

import msgpack
import pytest
import torch

from gearcache.guards.dispatch.frame import UnstorableConstant, bind_frame, decode_code, encode_code, resolve_reference

GLOBAL = 5


def _loop(n: int, *rest: int, key: int = 2, **named: int) -> int:
    total = key
    for number in range(n):
        if number % 2:
            continue
        total += number + sum(rest) + sum(named.values())
    return total


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


def _generator(n: int) -> Any:
    def made() -> Any:
        yield from range(n)

    return list(made())


def _matched(value: Any) -> str:
    match value:
        case [1, *rest]:
            return f"list {rest}"
        case {"a": found}:
            return f"dict {found}"
        case _:
            return f"{value!r:>4}"


def _with(values: list[int]) -> list[int]:
    with torch.no_grad():
        return values[1:][::-1]


def _roundtrip(function: types.FunctionType) -> types.FunctionType:
    plain = msgpack.unpackb(msgpack.packb(encode_code(function.__code__)), strict_map_key=False)
    return bind_frame(plain, {}, function)


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (_loop, [((4,), {}), ((5, 1, 2), {"key": 3, "more": 4})]),
        (_handled, [((0,), {}), ((4,), {})]),
        (_constants, [((), {})]),
        (_nested, [((3,), {})]),
        (_generator, [((3,), {})]),
        (_matched, [(([1, 2],), {}), (({"a": 1},), {}), ((7,), {})]),
        (_with, [(([1, 2, 3],), {})]),
    ],
    ids=lambda value: value.__name__ if isinstance(value, types.FunctionType) else "",
)
def test_a_function_does_the_same_after_a_round_trip(function: Any, calls: list[Any]) -> None:
    again = _roundtrip(function)
    for positional, keywords in calls:
        assert repr(again(*positional, **keywords)) == repr(function(*positional, **keywords))


def test_a_code_object_is_equal_after_a_round_trip() -> None:
    for function in (_loop, _handled, _nested, _generator, _matched, _with):
        code = function.__code__
        again = decode_code(msgpack.unpackb(msgpack.packb(encode_code(code)), strict_map_key=False), {})
        assert again == code
        assert again.co_exceptiontable == code.co_exceptiontable if hasattr(code, "co_exceptiontable") else True


@pytest.mark.parametrize(
    "value",
    [
        torch.float16,
        torch.strided,
        torch.channels_last,
        torch.device("cpu"),
        torch.Size([1, 2]),
        torch.return_types.topk,
        slice(1, None, 2),
        frozenset({1, "a"}),
        float("inf"),
        complex(1, -0.0),
    ],
    ids=lambda value: type(value).__name__,  # `repr` of a set has any order
)
def test_a_constant_of_a_frame_survives(value: Any) -> None:
    code = (lambda: None).__code__.replace(co_consts=(value,))
    again = decode_code(msgpack.unpackb(msgpack.packb(encode_code(code)), strict_map_key=False), {})
    # `repr` tells -0.0 from 0.0, but the order in a set is any.
    assert again.co_consts == (value,) if isinstance(value, frozenset) else repr(again.co_consts) == repr((value,))
    assert type(again.co_consts[0]) is type(value)


def test_a_constant_without_a_plain_form_is_refused_by_type() -> None:
    code = (lambda: None).__code__.replace(co_consts=(object(),))
    with pytest.raises(UnstorableConstant, match=r"builtins\.object"):
        encode_code(code)


OFFSET = 10


@pytest.mark.parametrize("reads_a_global", [True, False])
def test_helpers_are_kept_apart_and_go_when_the_frame_dies(reads_a_global: bool) -> None:
    def method() -> Any:
        return helper()  # type: ignore[name-defined]  # noqa: F821

    def method_with_global() -> Any:
        return helper() + OFFSET  # type: ignore[name-defined]  # noqa: F821

    own = method_with_global if reads_a_global else method
    helpers = [lambda: 1, lambda: 2]
    plain = encode_code(own.__code__)
    first, second = (bind_frame(plain, {"helper": helper}, own) for helper in helpers)  # type: ignore[arg-type]
    assert (first(), second()) == ((11, 12) if reads_a_global else (1, 2))
    assert any(name.startswith("_gearcache ") for name in globals()) is reads_a_global
    gone = weakref.ref(helpers[0])
    helpers.clear()
    assert (first(), second()) == ((11, 12) if reads_a_global else (1, 2))
    del first, second
    gc.collect()
    assert not any(name.startswith("_gearcache ") for name in globals())
    assert gone() is None


def test_a_frame_that_writes_a_global_writes_the_methods() -> None:
    def method() -> None:
        global WRITTEN
        WRITTEN = helper()  # type: ignore[name-defined]  # noqa: F821

    bind_frame(encode_code(method.__code__), {"helper": lambda: 3}, method)()  # type: ignore[arg-type]
    assert globals().pop("WRITTEN") == 3


def test_references_stand_for_modules_objects_and_builtins() -> None:
    assert resolve_reference("module", "torch.nn") is torch.nn
    assert resolve_reference("object", "torch.nn.modules.linear:Linear") is torch.nn.Linear
    assert resolve_reference("builtins", "")["len"] is len
    assert resolve_reference("module", "torch._dynamo.utils").__name__ == "gearcache.guards.dispatch.frame_helpers"
    with pytest.raises(ValueError, match="unknown reference kind"):
        resolve_reference("pickle", "x")
