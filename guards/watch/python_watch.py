"""The watch in Python, for installations without the extension: the same answers, more slowly."""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from gearcache.guards.access import own_attributes
from gearcache.guards.evidence.constants import NotConstant, to_plain
from gearcache.interrupts import raise_interrupt

_ABSENT = object()
_PLAIN = (int, float, str, bytes, tuple)


class PythonWatch:
    """Objects with the states that they had when they were added; every question compares all of them."""

    def __init__(self) -> None:
        #: A dictionary or the members of a class, and what its keys led to; or, if all count, its items.
        self._dicts: list[tuple[Any, dict[Any, Any], list[Any] | None]] = []
        self._states: dict[str, list[tuple[Any, Any, Any]]] = {kind: [] for kind in _KINDS}

    def add_keys(self, holder: Any, keys: Iterable[Any] | None, number: int = -1) -> int:
        """Watch some keys of a dictionary or class, or all; returns its number."""
        if number < 0:
            number = len(self._dicts)
            self._dicts.append((vars(holder) if isinstance(holder, type) else holder, {}, None))
        held, known, _ = self._dicts[number]
        if keys is None:
            self._dicts[number] = held, known, _items(held)
        else:
            known.update({key: value for key, value in _values(held, keys) if key not in known})
        return number

    def add(self, kind: str, value: Any, detail: Any = None) -> None:
        """Watch an object of a kind."""
        self._states[kind].append((value, detail, _KINDS[kind].state(value, detail)))

    def copy(self, other: PythonWatch, kind: str, number: int) -> None:
        """Watch an object of another watch, in the state that it had when it was added there."""
        if kind == "dictionary":
            held, known, items = other._dicts[number]
            self._dicts.append((held, dict(known), items))
        else:
            self._states[kind].append(other._states[kind][number])

    def holds(self) -> bool:
        """Return whether no watched object has changed."""
        return self.changed() is None

    def changed(self) -> tuple[str, int] | None:
        """Return kind and number of the first change, or None."""
        for number, (held, known, items) in enumerate(self._dicts):
            if not all(_is_same(value, known[key]) for key, value in _values(held, known)):
                return "dictionary", number
            if items is not None and not _are_same(_items(held), items):
                return "dictionary", number
        for kind, (state, is_same) in _KINDS.items():
            for number, (value, detail, before) in enumerate(self._states[kind]):
                try:
                    holds = is_same(state(value, detail), before)
                except Exception as error:  # a failing comparison counts as a change
                    raise_interrupt(error)
                    holds = False
                if not holds:
                    return kind, number
        return None


def _values(holder: Any, keys: Iterable[Any]) -> list[tuple[Any, Any]]:
    # A subclass of `dict` may have a `get` and `items` of its own; other holders are the members of classes.
    base = dict if isinstance(holder, dict) else type(holder)
    return [(key, base.get(holder, key, _ABSENT)) for key in keys]


def _items(holder: Any) -> list[Any]:
    base = next((base for base in (OrderedDict, dict) if isinstance(holder, base)), type(holder))
    return [part for item in base.items(holder) for part in item]


def _is_same(left: Any, right: Any) -> bool:
    """Return whether two values are the same to any trace: one object, or equal values of a plain immutable type."""
    if left is right:
        return True
    if type(left) is not type(right) or type(left) not in _PLAIN:
        return False
    try:
        return bool(to_plain(left) == to_plain(right))
    except NotConstant:
        return False


def _are_same(left: Any, right: Any) -> bool:
    return len(left) == len(right) and all(map(_is_same, left, right))


def _are_identical(left: Any, right: Any) -> bool:
    return all(one is other for one, other in zip(left, right, strict=True))


def _object(value: Any, detail: Any) -> Any:
    return type(value), own_attributes(value)


def _tensor(tensor: torch.Tensor, detail: Any) -> Any:
    place = tensor._cdata, tensor.data_ptr(), tensor.storage_offset()
    return place, tensor.dtype, tensor.device, tensor.shape, tensor.stride()


def _cell(cell: types.CellType, detail: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _ABSENT


def _slot(holder: Any, descriptor: types.MemberDescriptorType) -> Any:
    try:
        return descriptor.__get__(holder, type(holder))
    except AttributeError:
        return descriptor


class _Kind(NamedTuple):
    """How the state of an object is read, from it and a detail, and compared with an earlier one."""

    state: Callable[[Any, Any], Any]
    is_same: Callable[[Any, Any], bool]


_KINDS = {
    "object": _Kind(_object, _are_identical),
    "tensor": _Kind(_tensor, lambda left, right: bool(left == right)),
    "class": _Kind(lambda cls, detail: cls.__mro__, lambda left, right: left is right),
    "function": _Kind(
        lambda function, detail: (function.__code__, function.__defaults__, function.__kwdefaults__), _are_identical
    ),
    "list": _Kind(lambda items, detail: tuple(items), _are_same),
    "cell": _Kind(_cell, _is_same),
    "slot": _Kind(_slot, _is_same),
    "collection": _Kind(lambda items, detail: tuple(items), _are_same),
    "question": _Kind(lambda question, detail: question(), lambda left, right: bool(left == right)),
}
