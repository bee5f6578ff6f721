"""Collect watched objects, each once: containers and their relevant keys, classes, functions, slots and cells."""

from __future__ import annotations

import collections
import gc
import types
from collections.abc import Iterable
from typing import Any

import torch

from gearcache.guards.access import MODULE_PARTS, own_attributes
from gearcache.guards.watch.questions import Questions

#: Slots that cannot be assigned.
_FIXED_SLOTS = {
    *((types.FunctionType, name) for name in ("__closure__", "__globals__", "__builtins__")),
    *((types.MethodType, name) for name in ("__func__", "__self__")),
    *((property, name) for name in ("fget", "fset", "fdel")),
}
_ABSENT = object()
#: The collections of objects that are compared as a whole.
_WHOLE = ("lists", "collections", "cells", "slots", "tensors", "classes", "functions")


class WatchedObjects:
    """Containers and their relevant keys, each once, with texts for their places."""

    def __init__(self) -> None:
        self._members: dict[tuple[type, str], Any] = {}
        #: By identity: a dictionary or class, the relevant keys (None: all of them), and its owner.
        self.dicts: dict[int, tuple[Any, dict[Any, None] | None, str]] = {}
        self.lists: dict[int, list[Any]] = {}
        #: Sets and queues, which are compared as a whole.
        self.collections: dict[int, Any] = {}
        self.cells: dict[int, types.CellType] = {}
        #: By identities: an object, and the descriptor of one of its slots.
        self.slots: dict[tuple[int, int], tuple[Any, types.MemberDescriptorType]] = {}
        self.tensors: dict[int, torch.Tensor] = {}
        #: Classes that a trace has seen, whose bases and many names count: the bases here, the names in `named`.
        self.classes: dict[int, type] = {}
        self.named: dict[int, tuple[type, frozenset[str]]] = {}
        self.functions: dict[int, types.FunctionType] = {}
        self.questions = Questions()

    def include(self, other: WatchedObjects) -> None:
        """Add the objects of another collection."""
        for holder, keys, owner in other.dicts.values():
            self._add_keys(holder, keys, owner)
        for name in _WHOLE:
            getattr(self, name).update(getattr(other, name))
        self.questions.include(other.questions)
        for cls, names in other.named.values():
            self._add_named(cls, names)

    def missing_of(self, other: WatchedObjects) -> set[tuple[str, Any]]:
        """Return which objects of another collection, which keeps them alive, are not in this one."""
        missing = {(name, key) for name in _WHOLE for key in getattr(other, name).keys() - getattr(self, name).keys()}
        missing |= {("questions", key) for key in other.questions.asked.keys() - self.questions.asked.keys()}
        missing |= {
            ("dicts", key) for key, (holder, keys, _) in other.dicts.items() if not self._covers_keys(holder, keys)
        }
        missing |= {
            ("named", key)
            for key, (_, names) in other.named.items()
            if key not in self.named or not names <= self.named[key][1]
        }
        return missing

    def has(self, name: str, key: Any) -> bool:
        """Return whether an object that `missing_of` names is in this collection."""
        return key in (self.questions.asked if name == "questions" else getattr(self, name))

    def _covers_keys(self, holder: Any, keys: dict[Any, None] | None) -> bool:
        if id(holder) not in self.dicts:
            return False
        _, own_keys, _ = self.dicts[id(holder)]
        return own_keys is None or (keys is not None and keys.keys() <= own_keys.keys())

    def _add_named(self, cls: type, names: frozenset[str]) -> None:
        previous = self.named.get(id(cls))
        self.named[id(cls)] = (cls, names if previous is None or previous[1] is names else previous[1] | names)

    def add_function(self, value: Any) -> None:
        """Watch the code and the defaults of a function, or of the function in a descriptor."""
        for inner in (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),):
            if isinstance(inner, types.FunctionType):
                self.functions[id(inner)] = inner
                if inner.__kwdefaults__ is not None:
                    self._add_container(inner.__kwdefaults__)

    def _add_container(self, value: Any) -> None:
        """Watch the content of a container, but not what is inside its items."""
        value = _plain(value)
        if isinstance(value, (dict, type)):
            self._add_keys(value, None, "a dictionary")
            if type(value) is collections.OrderedDict and len(value) > 1:  # `move_to_end` writes nothing
                self.collections[id(value)] = value
        elif isinstance(value, list):
            self.lists[id(value)] = value
        elif type(value) in (set, collections.deque):
            self.collections[id(value)] = value

    def add_content(self, value: Any) -> None:
        """Watch a container that was compared as a whole, and the containers in it."""
        if isinstance(value, type) or not isinstance(value, (list, tuple, dict, set, types.MappingProxyType)):
            return
        self._add_container(value)
        for item in value.values() if isinstance(value, (dict, types.MappingProxyType)) else value:
            self.add_content(item)

    def _add_items(self, value: Any, keys: Iterable[Any]) -> None:
        """Watch some keys of a dictionary; for anything else the whole container."""
        holder = _plain(value)
        if isinstance(holder, dict):
            self._add_keys(holder, keys, "a dictionary")
        else:
            self._add_container(holder)

    def add_attributes(self, value: Any, names: Iterable[str]) -> None:
        if isinstance(value, type):
            for name in names:
                self._add_member(value, name)
        elif isinstance(value, types.CellType):
            self._add_cell(value)
        else:
            if isinstance(value, types.FunctionType):
                self.add_function(value)
            attributes = own_attributes(value)
            if attributes is not None:
                self._add_keys(attributes, names, type(value).__name__)
            missing = names if attributes is None else [name for name in names if name not in attributes]
            self.questions.add_settings(value, missing)
            if not isinstance(value, (torch.Tensor, types.ModuleType)):
                for name in missing:
                    self._add_inherited(value, name, attributes)

    def _add_inherited(self, value: Any, name: str, attributes: dict[str, Any] | None) -> None:
        """Watch an attribute that is not in an object's own dictionary."""
        if name in ("__dict__", "__class__"):
            return
        member = self._add_member(type(value), name)
        if type(member) is types.MemberDescriptorType and (type(value), name) not in _FIXED_SLOTS:
            self.slots[id(value), id(member)] = (value, member)
        if member is not _ABSENT or attributes is None or not isinstance(value, torch.nn.Module):
            return
        for part in MODULE_PARTS:
            part_members = attributes.get(part)
            if isinstance(part_members, dict):
                self._add_keys(part_members, (name,), type(value).__name__)
                if name in part_members:
                    return

    def _add_member(self, cls: type, name: str) -> Any:
        """Watch where a class finds a member; returns the member as stored in the class."""
        if (cls, name) in self._members:
            return self._members[cls, name]
        member: Any = _ABSENT
        for base in cls.__mro__:
            self._add_keys(base, (name,), base.__name__)
            if name in base.__dict__:
                member = base.__dict__[name]
                break
        self._members[cls, name] = member
        return member

    def _add_keys(self, holder: Any, keys: Iterable[Any] | None, owner: str) -> None:
        """Watch some keys of a dictionary or class; None for all of them."""
        previous = self.dicts.get(id(holder))
        if keys is None:
            self.dicts[id(holder)] = (holder, None, owner)
        elif previous is None:
            self.dicts[id(holder)] = (holder, dict.fromkeys(keys), owner)
        elif previous[1] is not None:
            previous[1].update(dict.fromkeys(keys))

    def _add_cell(self, cell: types.CellType) -> None:
        self.cells[id(cell)] = cell


def slot_value(descriptor: types.MemberDescriptorType, holder: Any) -> Any:
    """Return the value of a slot; the descriptor itself where it is not set."""
    try:
        return descriptor.__get__(holder, type(holder))
    except AttributeError:
        return descriptor


def _plain(value: Any) -> Any:
    """Return the dictionary behind a view of a class's dictionary."""
    return next(iter(gc.get_referents(value))) if type(value) is types.MappingProxyType else value
