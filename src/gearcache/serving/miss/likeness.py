"""Outlines of calls, which are equal for calls that are refused for the same reason.

Objects of which a program makes another one for each call (sizes, devices, slices, named tuples) count as their values.
"""

from __future__ import annotations

import collections
import enum
import os
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from gearcache.guards.access import own_attributes
from gearcache.guards.dispatch.tensors.native import tensor_kind
from gearcache.guards.evidence.code import code_objects
from gearcache.guards.evidence.names import module_of
from gearcache.guards.evidence.tensor_facts import PLAIN_TYPES
from gearcache.serving.call.call import Call

#: Types whose equal values are interchangeable; others are compared as text (-0.0 and 0.0, NaN).
_SCALARS = frozenset((bool, int, str, bytes, type(None)))
_BY_TEXT = frozenset((float, complex, torch.device, torch.finfo, torch.iinfo))
_BY_PARTS = {slice: ("start", "stop", "step"), range: ("start", "stop", "step")}
#: Subclasses of these count as their values too.
_NUMBERS_AND_TEXTS = (int, float, complex, str, bytes)
#: What is another thing if it is another object, in every call.
_UNIQUE = (type, types.ModuleType, torch.nn.Module, enum.Enum)
_FLAGS = frozenset((bool, type(None)))


class _Same:
    """Equal for the same object only: another one may get the address of one that is gone. Keeps none alive."""

    def __init__(self, value: Any) -> None:
        try:
            self._object: Callable[[], Any] = weakref.ref(value)
        except TypeError:  # of a class without weak references
            self._object = lambda: value
        self._hash = id(value)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, _Same) and (value := self._object()) is not None and value is other._object()
        )

    def __hash__(self) -> int:
        return self._hash


def likeness(call: Call, *, exact: bool = True) -> Any:
    """Return a value that is equal for calls that are refused for the same reason.

    Unless `exact`, ints and sizes do not count, nor which objects there are, nor how many of a kind a list, a dict or a
    set has: a module may count its calls, and keep something of each.
    """
    instance = next(iter(call.arguments.values()))
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), call.stance, frozenset(os.environ.items())
    arguments = tuple((name, _outline(value, exact=exact)) for name, value in call.given.items())
    # Which arguments are the same object; Python may or may not keep equal values as one.
    places = [index if _is_value(value) else id(value) for index, value in enumerate(call.given.values())]
    joined = tuple(map(places.index, places))
    # The instance is represented by its identity; the content of its modules is listed.
    module_globals = call.scope.module_globals
    used = _used_names(instance, module_globals)
    seen = {name: value for name, value in list(module_globals.items()) if name in used}
    return modes, arguments, joined, tuple(_parts(instance, exact=exact)), _outlines(seen, exact=exact)


def _used_names(instance: Any, module_globals: Mapping[str, Any]) -> set[str]:
    """Return the names in the code of a file's functions and methods, without those of a script's loop."""
    classes = [value for value in list(module_globals.values()) if isinstance(value, type)]
    spaces = [module_globals, *map(vars, classes), *map(vars, type(instance).__mro__)]
    functions = [value for space in spaces for value in list(space.values()) if type(value) is types.FunctionType]
    codes = [function.__code__ for function in functions if function.__globals__ is module_globals]
    return {name for code in codes for nested in code_objects(code) for name in nested.co_names}


def _parts(instance: Any, *, exact: bool) -> Iterable[Any]:
    """Yield the content of the module, its submodules and their classes; no user code is called."""
    queue, seen = [instance], set()
    classes: dict[type, None] = {}
    while queue:
        module = queue.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        classes.update(dict.fromkeys(type(module).__mro__))
        attributes = own_attributes(module) or {}
        yield _Same(module), _Same(type(module)), _outlines(attributes, exact=exact)
        children = attributes.get("_modules")
        if type(children) is dict:
            queue.extend(children.values())
    for cls in classes:
        if not module_of(cls).startswith(("torch.nn.modules", "builtins")):
            yield _Same(cls), _outlines(vars(cls), exact=exact)


def _outlines(values: Mapping[str, Any], *, exact: bool) -> Any:
    return tuple((name, _outline(value, 2, exact=exact)) for name, value in list(values.items()))


def _is_value(value: Any) -> bool:
    """Whether an equal object of the same type is the same to every method."""
    kind = type(value)
    return kind in _SCALARS or kind in _BY_TEXT or kind in _BY_PARTS or kind is torch.Size


def _outline(value: Any, depth: int = 4, *, exact: bool = True) -> Any:
    """Return type and value, items of containers, the layout of a tensor; for other objects, the identity."""
    kind = type(value)
    if kind is int and not exact:
        return kind
    if kind in _SCALARS:
        return kind, value
    if kind in PLAIN_TYPES:
        return _outline_of_tensor(value, exact=exact)
    if kind in _BY_TEXT:
        return kind, repr(value)
    if kind in _BY_PARTS:
        return kind, tuple(_outline(getattr(value, name), 0, exact=exact) for name in _BY_PARTS[kind])
    if kind is types.FunctionType:
        return _Same(value), _Same(value.__code__)
    attributes = (own_attributes(value) or {}) if depth and not issubclass(kind, (type, torch.nn.Module)) else {}
    if depth and (items := _items(value, depth - 1, exact=exact)) is not None:
        own = tuple((name, _outline(item, depth - 1, exact=exact)) for name, item in list(attributes.items()))
        return _Same(kind), items, own
    # Of an object its flags: numbers and texts may be other ones at each call. `_parts` lists modules.
    flags = tuple((name, item) for name, item in list(attributes.items()) if type(item) in _FLAGS)
    if not issubclass(kind, _UNIQUE):
        for base in _NUMBERS_AND_TEXTS:
            if issubclass(kind, base):
                return _Same(kind), base if base is int and not exact else base.__repr__(value), flags
        if not exact:
            return _Same(kind), flags
    return _Same(value), flags


def _outline_of_tensor(value: torch.Tensor, *, exact: bool) -> Any:
    """Return what a graph's check compares; its dispatch keys tell whether a tensor is conjugated, or of inference."""
    facts = tensor_kind(value), value.dtype, value.device, value._base is None
    if not exact:
        return *facts, value.dim()
    layout = tuple(value.stride()) if value.layout == torch.strided else str(value.layout)
    return *facts, tuple(value.shape), layout


def _items(value: Any, depth: int, *, exact: bool) -> Any:
    """Return the outlines of a container's items, without running code of its class; None for other objects."""
    kind = type(value)
    collected = tuple if exact else frozenset
    if issubclass(kind, tuple):
        return tuple(_outline(item, depth, exact=exact) for item in tuple.__iter__(value))
    if issubclass(kind, list):
        return collected(_outline(item, depth, exact=exact) for item in list.__iter__(value))
    for mapping in (collections.OrderedDict, dict):
        if issubclass(kind, mapping):
            pairs = list(mapping.items(value))
            return collected(
                (_outline(key, depth, exact=exact), _outline(item, depth, exact=exact)) for key, item in pairs
            )
    for plural in (set, frozenset):
        if issubclass(kind, plural):
            return frozenset(_outline(item, depth, exact=exact) for item in list(plural.__iter__(value)))
    return None
