"""The one encoding of values into key bytes, and their plain form in a manifest.

The encoding is type-tagged and length-prefixed, so two values share their bytes only if they are the same
value (`1`, `1.0` and `True` differ; a tuple and a list of the same items do not).  Nothing is ever encoded
through `str()` or `repr()`, whose text may hold addresses or change between releases.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, Flag
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from gearcache.errors import UnkeyableValue

MAX_DEPTH = 32

Plain: TypeAlias = "bool | int | float | str | bytes | Sequence[Plain] | Mapping[str, Plain] | None"
"""What msgpack stores and gives back."""

Encodable: TypeAlias = (
    "bool | int | float | str | bytes | Enum | Struct | Sequence[Encodable] | Mapping[str, Encodable] | None"
)
"""What may be part of a key: `tuple`, `list`, `dict` and frozen structs themselves, no subclasses of the others."""


class _RefusedError(Exception):
    """An unkeyable value; collects the path to it while the encoder unwinds."""

    def __init__(self, type_name: str, detail: str = "") -> None:
        super().__init__(type_name, detail)
        self.type_name, self.detail = type_name, detail
        self.path: list[str] = []


def encode(component: str, value: Encodable) -> bytes:
    """Encode one value; `component` only names it in `UnkeyableValue`.

    Types are matched exactly: a subclass (`numpy.float64`, `torch.Size`, a named tuple) may carry a meaning
    that the encoding would lose.  All NaNs are one value; `-0.0` is not `0.0`.
    """
    out: list[bytes] = []
    try:
        _write(out, value, 0)
    except _RefusedError as refusal:
        where = f"at `{'.'.join(reversed(refusal.path))}`" if refusal.path else ""
        detail = ", ".join(filter(None, (where, refusal.detail)))
        raise UnkeyableValue(component, refusal.type_name, detail) from None
    return b"".join(out)


def lower(value: Encodable) -> Plain:
    """Turn a keyable value into what a manifest stores and gives back: lists, dicts and scalars.

    Enum members and structs become their qualified names and fields, integers beyond 64 bits hexadecimal
    text.  Call it on values that `encode` accepted.
    """
    item: Any = value
    kind = type(item)
    if item is None or kind in (bool, float, str, bytes):
        plain: Plain = item
    elif kind is int:
        plain = item if -(1 << 63) <= item < 1 << 64 else hex(item)
    elif isinstance(item, Enum):
        plain = f"{_type_name(item)}.{_member(item)}"
    elif kind is tuple or kind is list:
        plain = [lower(child) for child in item]
    elif kind is dict:
        plain = {name: lower(child) for name, child in item.items()}
    elif _is_frozen_struct(item):
        plain = {"class": _type_name(item), **{name: lower(child) for name, child in _fields(item)}}
    else:
        raise UnkeyableValue("", kind.__qualname__)
    return plain


def _write(out: list[bytes], value: Any, depth: int) -> None:
    kind = type(value)
    if value is None:
        out.append(b"N")
    elif kind is bool:
        out.append(b"T" if value else b"F")
    elif kind is int:
        size = value.bit_length() // 8 + 1
        _write_sized(out, b"I", value.to_bytes(size, "big", signed=True))
    elif kind is float:
        # One bit pattern for every NaN: its sign and payload depend on how it was computed.
        out.append(b"D" + struct.pack(">d", value if value == value else float("nan")))
    elif kind is str:
        _write_text(out, b"S", value)
    elif kind is bytes:
        _write_sized(out, b"B", value)
    elif isinstance(value, Enum):
        _write_text(out, b"E", _type_name(value))
        _write_text(out, b"S", _member(value))
    elif depth >= MAX_DEPTH:
        raise _RefusedError(kind.__qualname__, f"nested more than {MAX_DEPTH} deep")
    else:
        _write_container(out, value, depth + 1)


def _write_container(out: list[bytes], value: Any, depth: int) -> None:
    kind = type(value)
    items: Sequence[tuple[str, object]]
    if kind is tuple or kind is list:
        out.append(b"L" + len(value).to_bytes(8, "big"))
        for index, item in enumerate(value):
            try:
                _write(out, item, depth)
            except _RefusedError as refusal:
                refusal.path.append(str(index))
                raise
        return
    if kind is dict:
        for name in value:
            if type(name) is not str:
                raise _RefusedError(type(name).__qualname__, "as a dict key, where only `str` is allowed")
        items = sorted(value.items())
        out.append(b"M")
    elif _is_frozen_struct(value):
        items = list(_fields(value))
        _write_text(out, b"C", _type_name(value))
    else:
        raise _RefusedError(kind.__qualname__)
    out.append(len(items).to_bytes(8, "big"))
    for name, item in items:
        _write_text(out, b"S", name)
        try:
            _write(out, item, depth)
        except _RefusedError as refusal:
            refusal.path.append(name)
            raise


def _write_sized(out: list[bytes], tag: bytes, data: bytes) -> None:
    out += tag, len(data).to_bytes(8, "big"), data


def _write_text(out: list[bytes], tag: bytes, text: str) -> None:
    try:
        _write_sized(out, tag, text.encode())
    except UnicodeEncodeError:
        raise _RefusedError("str", "with lone surrogates") from None


def _is_frozen_struct(value: object) -> bool:
    return isinstance(value, Struct) and value.__struct_config__.frozen


def _fields(value: Struct) -> Iterable[tuple[str, Encodable]]:
    return asdict(value).items()


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _member(value: Enum) -> str:
    # Combined flags have no name before Python 3.11, and a made-up one after.
    return str(int(value.value)) if isinstance(value, Flag) else value.name
