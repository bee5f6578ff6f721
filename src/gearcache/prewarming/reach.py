"""Finds the modules and cached methods that a model reaches in this process, wherever its attributes keep them.

Near objects are in modules, lists, tuples, sets, dicts and partial functions, where users expect them. Far objects are
inside other objects and in closures and may belong to something else; of these only cached methods are reported.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

from gearcache.attaching.attachment import SEAM, Attachment, attachment_of
from gearcache.guards.access import own_attributes
from gearcache.guards.evidence.code import closed_over
from gearcache.serving.call.decorated_method import CachedFunction
from gearcache.serving.call.method import CachedMethod
from gearcache.serving.call.stance import followers

#: The most objects that are searched, near ones before far ones.
MOST_OBJECTS = 200_000
_ATOMS = (type(None), bool, int, float, complex, str, bytes, bytearray, torch.Tensor, torch.dtype, torch.device, type)
_OPAQUE = (*_ATOMS, types.ModuleType, types.CodeType, types.BuiltinFunctionType, range, memoryview)


class Reach:
    """The objects that some values reach. No user code is called, but the decorated methods of modules are made."""

    def __init__(self, *values: Any) -> None:
        self._seen: dict[int, Any] = {}
        self._near = deque(values)
        self._far: deque[Any] = deque()
        #: All modules, near and far.
        self.modules: list[torch.nn.Module] = []
        #: The near cached methods and attachments, and the far cached methods.
        self.held: list[CachedMethod | Attachment] = []
        self._far_methods: list[CachedMethod] = []
        while self._near and len(self._seen) < MOST_OBJECTS:
            self._visit(self._near.popleft())
        while self._far and len(self._seen) < MOST_OBJECTS:
            self._visit_far(self._far.popleft())

    @property
    def methods(self) -> list[CachedMethod]:
        """All cached methods: near ones, far ones, and those of this process that belong to one of the modules."""
        near = [item.method if isinstance(item, Attachment) else item for item in self.held]
        ids = set(map(id, self.modules))
        alive = [method for method in followers() if id(method.instance) in ids]  # wherever they are kept
        return list({id(method): method for method in (*near, *self._far_methods, *alive)}.values())

    def _is_new(self, value: Any) -> bool:
        if _is(value, _OPAQUE) or id(value) in self._seen:
            return False
        self._seen[id(value)] = value  # kept, so that no other object gets its id
        return True

    def _visit(self, value: Any) -> None:
        if not self._is_new(value):
            return
        if _is(value, torch.nn.Module):
            _make_decorated(value)
            self.modules.append(value)
            self._near.extend(vars(value).values())
            if (attachment := attachment_of(vars(value).get(SEAM))) is not None:
                self._near.append(attachment)
        elif _is(value, (CachedMethod, Attachment)):
            self.held.append(value)
        elif (items := _items(value)) is not None:
            self._near.extend(items)
        else:
            del self._seen[id(value)]
            self._far.append(value)

    def _visit_far(self, value: Any) -> None:
        if not self._is_new(value):
            return
        if _is(value, torch.nn.Module):
            self.modules.append(value)
        if _is(value, CachedMethod):
            self._far_methods.append(value)
        elif _is(value, Attachment):
            self._far_methods.append(value.method)
        else:
            self._far.extend(_items(value) or _parts(value))


def _is(value: Any, kinds: Any) -> bool:
    """As `isinstance`, but without reading the object's `__class__`: a proxy may import something then."""
    return issubclass(type(value), kinds)


def _items(value: Any) -> list[Any] | None:
    """Return the items of a container or partial function, ignoring overrides of its class; None for anything else."""
    if _is(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if _is(value, dict):
        return list(dict.values(value))
    for kind in (list, tuple, set, frozenset, deque):
        if _is(value, kind):
            return list(kind.__iter__(value))
    return None


def _parts(value: Any) -> Iterator[Any]:
    """Yield the parts of an object: attributes, slots, a closure, the object that a method is bound to."""
    if _is(value, types.MethodType):
        yield from (value.__self__, value.__func__)
    if _is(value, types.FunctionType):
        yield from closed_over(value)
    yield from (own_attributes(value) or {}).values()
    for cls in type(value).__mro__:
        for member in vars(cls).values():
            if isinstance(member, types.MemberDescriptorType) and cls.__module__ != "builtins":
                try:
                    yield member.__get__(value)
                except (AttributeError, TypeError, ValueError, RuntimeError):  # it is not set
                    continue


def _make_decorated(module: torch.nn.Module) -> None:
    """Make the decorated methods of a module: each one is made when it is first read."""
    names: set[str] = set()
    for cls in type(module).__mro__:
        for name, member in vars(cls).items():
            if name not in names and isinstance(member, CachedFunction):
                getattr(module, name)
        names.update(vars(cls))  # a subclass may override it
