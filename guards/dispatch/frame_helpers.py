"""Helpers that a stored frame calls instead of `torch._dynamo.utils`: same names, no Dynamo import.

They behave as the functions of the same names in torch 2.13, whose bodies have a line or two each.
"""

from __future__ import annotations

import itertools
import threading
import types
from typing import Any

iter_next = next


def call_size(tensor: Any, dim: int) -> int:
    """Return the size of one dim."""
    return tensor.size(dim)  # type: ignore[no-any-return]


def call_stride(tensor: Any, dim: int) -> int:
    """Return the stride of one dim."""
    return tensor.stride(dim)  # type: ignore[no-any-return]


def call_storage_offset(tensor: Any) -> int:
    """Return the storage offset."""
    return tensor.storage_offset()  # type: ignore[no-any-return]


def _instance_dict(target: Any) -> dict[str, Any]:
    try:
        return object.__getattribute__(target, "__dict__")  # type: ignore[no-any-return]
    except AttributeError:
        if not isinstance(target, threading.local):
            raise
        return threading.local.__getattribute__(target, "__dict__")  # type: ignore[no-any-return]


def object_setattr_ignore_descriptor(target: Any, name: str, value: Any) -> None:
    """Write to the instance dictionary, past any descriptor of the class."""
    _instance_dict(target)[name] = value


def object_delattr_ignore_descriptor(target: Any, name: str) -> None:
    """Delete from the instance dictionary, past any descriptor of the class."""
    del _instance_dict(target)[name]


def object_new(cls: type) -> Any:
    """Return an uninitialised instance; of a module, one that can take attributes."""
    instance: Any = cls.__new__(cls)  # type: ignore[call-overload]
    if hasattr(instance, "_parameters") or hasattr(type(instance), "register_parameter"):
        import torch

        if isinstance(instance, torch.nn.Module):
            torch.nn.Module.__init__(instance)
    return instance


def dict_keys_getitem(mapping: dict[Any, Any], index: int) -> Any:
    """Return the key at a position."""
    return next(itertools.islice(dict.keys(mapping), index, index + 1))


def dict_getitem(mapping: dict[Any, Any], key: Any) -> Any:
    """Return an item, past any override."""
    return dict.__getitem__(mapping, key)


def list_getitem(sequence: list[Any], index: int) -> Any:
    """Return an item, past any override."""
    return list.__getitem__(sequence, index)


def set_getitem(collection: set[Any], index: int) -> Any:
    """Return the item at a position of the iteration order."""
    return list(collection)[index]


def tuple_iterator_getitem(iterator: Any, index: int) -> Any:
    """Look ahead into a tuple iterator without moving it."""
    _, (sequence,), start = iterator.__reduce__()
    return sequence[start + index]


def make_cell(value: Any = None) -> types.CellType:
    """Return a new closure cell."""
    return types.CellType(value)
