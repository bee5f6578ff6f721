"""The watch in Python, for installations without the extension: the same answers, more slowly."""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import torch

from gearcache.guards.evidence.constants import NotConstant, to_plain
from gearcache.guards.watch.objects import slot_value

_ABSENT = object()
_PLAIN = (int, float, str, bytes, tuple)


class PythonWatch:
    """A snapshot of objects; every question compares all of them."""

    def __init__(
        self,
        dicts: tuple[tuple[Any, tuple[Any, ...] | frozenset[str] | None], ...],
        lists: tuple[tuple[list[Any], tuple[Any, ...]], ...],
        collections: tuple[tuple[Any, Any], ...],
        cells: tuple[tuple[types.CellType, Any], ...],
        slots: tuple[tuple[Any, tuple[types.MemberDescriptorType, Any]], ...],
        tensors: tuple[torch.Tensor, ...],
        classes: tuple[type, ...],
        functions: tuple[types.FunctionType, ...],
        questions: tuple[tuple[Any, Any], ...],
    ) -> None:
        content_keys = [(vars(holder) if isinstance(holder, type) else holder, keys) for holder, keys in dicts]
        self._keyed = [(holder, keys, _values(holder, keys)) for holder, keys in content_keys if keys is not None]
        self._whole = [(holder, _items(holder)) for holder, keys in content_keys if keys is None]
        self._numbers = [number for number, (_, keys) in enumerate(content_keys) if keys is not None]
        self._numbers += [number for number, (_, keys) in enumerate(content_keys) if keys is None]
        self._lists, self._collections, self._cells, self._slots = lists, collections, cells, slots
        self._tensors = [(tensor, _place(tensor)) for tensor in tensors]
        self._classes = [(cls, cls.__mro__) for cls in classes]
        self._functions = [(function, _parts(function)) for function in functions]
        self._questions = questions

    def holds(self) -> bool:
        """Return whether no watched object has changed."""
        return self.changed() is None

    def changed(self) -> tuple[str, int] | None:
        """Return kind and number of the first change, or None."""
        dicts = [all(map(_same, _values(holder, keys), values)) for holder, keys, values in self._keyed]
        dicts += [
            len(holder) == len(items) and all(map(_same_item, _items(holder), items)) for holder, items in self._whole
        ]
        if not all(dicts):
            return "dictionary", self._numbers[dicts.index(False)]
        for number, (tensor, place) in enumerate(self._tensors):
            if _place(tensor) != place:
                return "tensor", number
        for number, (cls, bases) in enumerate(self._classes):
            if cls.__mro__ is not bases:
                return "class", number
        for number, (function, parts) in enumerate(self._functions):
            if any(current is not original for current, original in zip(_parts(function), parts, strict=True)):
                return "function", number
        for number, (value, items) in enumerate(self._lists):
            if len(value) != len(items) or not all(map(_same, value, items)):
                return "list", number
        for number, (cell, content) in enumerate(self._cells):
            if not _same(_content(cell), content):
                return "cell", number
        for number, (holder, (descriptor, value)) in enumerate(self._slots):
            if not _same(slot_value(descriptor, holder), value):
                return "slot", number
        for number, (collection, items) in enumerate(self._collections):
            if not _holds_items(collection, items):
                return "collection", number
        for number, (question, answer) in enumerate(self._questions):
            if question() != answer:
                return "question", number
        return None


def _parts(function: types.FunctionType) -> tuple[Any, ...]:
    return function.__code__, function.__defaults__, function.__kwdefaults__


def _values(holder: Any, keys: Iterable[Any]) -> list[Any]:
    # A subclass of `dict` may have a `get` and `items` of its own; other holders are the members of classes.
    base = dict if isinstance(holder, dict) else type(holder)
    return [base.get(holder, key, _ABSENT) for key in keys]


def _items(holder: Any) -> list[tuple[Any, Any]]:
    base = next((base for base in (OrderedDict, dict) if isinstance(holder, base)), type(holder))
    return list(base.items(holder))


def _same_item(left: tuple[Any, Any], right: tuple[Any, Any]) -> bool:
    return _same(left[0], right[0]) and _same(left[1], right[1])


def _same(left: Any, right: Any) -> bool:
    """Return whether two values are the same to any trace: one object, or equal values of a plain immutable type."""
    if left is right:
        return True
    if type(left) is not type(right) or type(left) not in _PLAIN:
        return False
    try:
        return bool(to_plain(left) == to_plain(right))
    except NotConstant:
        return False


def _holds_items(collection: Any, items: tuple[Any, ...]) -> bool:
    try:
        current_items = tuple(collection)
    except Exception:  # a failing comparison counts as a change
        return False
    return len(current_items) == len(items) and all(map(_same, current_items, items))


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _ABSENT


def _place(tensor: torch.Tensor) -> Any:
    return tensor.data_ptr(), tensor.dtype, tensor.device, tensor.shape, tensor.stride()
