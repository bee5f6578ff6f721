"""Compare keys of containers as Python does: `1`, `True` and `1.0` are one key, and so are a named tuple and a tuple.

A key has two forms: that of `guards.evidence.constants.to_plain`, which distinguishes types, and Python's own, by which
it is looked up. A lookup has no side effect: a `defaultdict` makes no item for it.
"""

from __future__ import annotations

import enum
import functools
import math
import sys
import types
from collections.abc import Callable, KeysView, Mapping
from typing import Any

from msgspec import msgpack

#: Classes of keys that equal only themselves, or a key of another form that `plain_key` converts to them.
_ITSELF = (type(None), bool, int, str, bytes, float, complex)
#: The same for torch; commands that read an entry run without torch.
_ENUMS, _DEVICE = ("dtype", "layout", "memory_format"), ("device",)
#: Marks a packed key in the expected data of checks.
_PACKED = "key"
_BASES: tuple[Any, ...] = (int, float, complex, str, bytes, tuple)
#: Containers in which `in` hashes; all others are searched linearly.
_HASHED = (dict, set, frozenset, types.MappingProxyType, KeysView)


class NotKey(Exception):
    """A key that another process cannot rebuild."""


def plain_key(key: Any) -> Any:
    """Return the key of builtin type that equals a key and replaces it in lookups; `NotKey` where there is none."""
    kind = type(key)
    if isinstance(key, float) and math.isnan(key):
        raise NotKey("nan, which is equal to nothing")
    if kind in _ITSELF or _is_of_torch(kind, (*_ENUMS, *_DEVICE)):
        return key
    if kind is frozenset:
        return frozenset(map(plain_key, key))
    for base in _BASES:
        if isinstance(key, base) and _compares_as(kind, base):
            if base is tuple:
                return tuple(map(plain_key, key))
            return plain_key(base(key) if base is not str else str.__str__(key))
    raise NotKey(f"{kind.__module__}.{kind.__qualname__}")


def _torch() -> Any:
    import torch

    return torch


def _is_of_torch(kind: type, names: tuple[str, ...]) -> bool:
    """Return whether a class is one of torch's with these names; a process with such an object has imported torch."""
    module = sys.modules.get("torch")
    return module is not None and any(kind is getattr(module, name, None) for name in names)


def _compares_as(kind: type, base: type) -> bool:
    """Return whether objects of a class compare and hash as objects of its base."""
    is_of_numpy = kind.__module__ == "numpy"
    is_like_base = kind.__eq__ is base.__eq__ and kind.__hash__ is base.__hash__
    return (is_of_numpy and not issubclass(kind, enum.Enum)) or is_like_base


def packed(key: Any) -> bytes:
    """Return a key of `plain_key` as bytes, for an access path; `NotKey` where it cannot be rebuilt."""
    return msgpack.encode(_encode(key))


def _encode(key: Any) -> Any:
    kind = type(key)
    if kind is complex:
        return [kind.__name__, repr(key)]
    if kind is int and not -(1 << 63) <= key < (1 << 64):
        return ["int", repr(key)]
    if kind in (tuple, frozenset):
        items = [_encode(item) for item in key]
        return [kind.__name__, items if kind is tuple else sorted(items, key=msgpack.encode)]
    if _is_of_torch(kind, _ENUMS):
        return ["torch", str(key).removeprefix("torch.")]
    if _is_of_torch(kind, _DEVICE):
        return ["device", str(key)]
    return key


_CONSTRUCTORS: dict[str, Callable[[Any], Any]] = {
    "complex": complex,
    "int": int,
    "device": lambda text: _torch().device(text),
    "torch": lambda name: getattr(_torch(), name),
    "tuple": lambda items: tuple(map(_decode, items)),
    "frozenset": lambda items: frozenset(map(_decode, items)),
}


def _decode(data: Any) -> Any:
    return _CONSTRUCTORS[data[0]](data[1]) if isinstance(data, list) else data


@functools.lru_cache(maxsize=4096)
def unpacked(data: bytes) -> Any:
    """Inverse of `packed`; `ValueError` for other bytes."""
    try:
        key = _decode(msgpack.decode(data))
        if packed(plain_key(key)) == data:
            return key
    except (NotKey, LookupError, TypeError, AttributeError, RuntimeError, ValueError) as error:
        raise ValueError(f"no key: {data[:40]!r}") from error
    raise ValueError(f"no key: {data[:40]!r}")


def asked(key: Any) -> Any:
    """Return the expected data of a check for a key: the key itself where it is plain data; `NotKey`."""
    key = plain_key(key)
    is_plain = type(key) is str or (type(key) is int and -(1 << 63) <= key < (1 << 64))
    return key if is_plain else [_PACKED, packed(key)]


def is_asked(expected: Any) -> bool:
    """Whether data is what `asked` returns."""
    return type(expected) in (str, int) or (type(expected) is list and expected[:1] == [_PACKED])


def asked_key(expected: Any) -> Any:
    """Inverse of `asked`; `ValueError` for other data."""
    return unpacked(expected[1]) if type(expected) is list else expected


def item(value: Any, key: Any) -> Any:
    """Return `value[key]`, without adding an item to a dictionary that lacks it; `KeyError` instead."""
    if isinstance(value, dict) and type(value).__getitem__ is dict.__getitem__:
        return dict_item(value, key)
    return value[key]


def dict_item(value: dict[Any, Any], key: Any) -> Any:
    """Return the value of a dictionary's key, bypassing its class's `__getitem__` and `__missing__`; `KeyError`."""
    if type(value) is dict or dict.__contains__(value, key):
        return dict.__getitem__(value, key)
    raise KeyError(key)


def has_key(value: Any, key: Any) -> bool:
    """Return whether a container holds a key of `plain_key`, as `in` does; items without a plain key differ."""
    if isinstance(value, _HASHED):
        return key in (dict.keys(value) if isinstance(value, dict) else value)
    return any(
        _is_key(candidate) and candidate == key for candidate in (value.keys() if isinstance(value, Mapping) else value)
    )


def _is_key(value: Any) -> bool:
    try:
        plain_key(value)
    except NotKey:
        return False
    return True
