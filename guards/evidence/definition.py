"""Describe a function, a descriptor or a field to a few levels of depth: code, defaults, closed-over values.

Dynamo guards the defaults and closures of functions that have a source. It has no source for the classes of objects
that the method itself makes, so this module describes what their construction reads.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import re
import types
from collections.abc import Iterator
from typing import Any

from gearcache.guards.evidence.code import closed_over, function_plain
from gearcache.guards.evidence.constants import NotConstant, to_plain
from gearcache.guards.evidence.names import name_of

#: How many containers are looked into that lie in one another, and in functions: one may hold itself.
_DEEPEST = 8
#: The first `torch.compile` of a process puts functions of this module around `Module.__init__` and `__setstate__`,
#: which note that a module is new and do nothing else (torch 2.13, `install_generation_tagging_init`).
_NOTING = "torch._dynamo.mutation_guard"


def definition(value: Any) -> Any:
    """Return plain data that differs where a value of a class, a default or a closure would act differently.

    Objects without a plain form count by their class, and containers by what they hold.
    """
    return _describe(value, 0)


def definition_digest(value: Any) -> str:
    """Return a short digest of a definition."""
    return hashlib.sha256(repr(definition(value)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _describe(value: Any, depth: int) -> Any:
    if isinstance(value, types.FunctionType):
        value = _unwrapped(value)
        return ["function", *function_plain(value), *(_captures(value, depth) if depth < 3 else [])]
    if isinstance(value, (classmethod, staticmethod, types.MethodType)):
        return [type(value).__name__, _describe(value.__func__, depth)]
    if isinstance(value, property):
        return ["property", *(_describe(item, depth) for item in (value.fget, value.fset, value.fdel))]
    if isinstance(value, functools.cached_property):
        return ["cached", _describe(value.func, depth)]
    if isinstance(value, functools.partial) and depth < 3:
        keywords = [[name, _describe(item, depth + 1)] for name, item in value.keywords.items()]
        return ["partial", _describe(value.func, depth), [_describe(item, depth + 1) for item in value.args], keywords]
    if isinstance(value, dataclasses.Field):
        parts = [_describe(item, depth + 1) for item in (value.default, value.default_factory)]
        return ["field", value.name, *parts, bool(value.init), value.kw_only is True]
    if isinstance(value, enum.Enum):
        own = [[name, _describe(item, depth + 1)] for name, item in sorted(vars(value).items()) if name[0] != "_"]
        return ["member", name_of(type(value)), value.name, _describe(value.value, depth + 1), own]
    if isinstance(value, re.Pattern):
        return ["pattern", value.pattern, value.flags]
    try:
        return ["constant", to_plain(value)]
    except NotConstant:
        return [name_of(type(value)), *(_items(value, depth + 1) if depth < _DEEPEST else [])]


def _items(value: Any, depth: int) -> Iterator[Any]:
    """Yield what a container holds: a trace takes such a container for a constant, whatever is in it."""
    if isinstance(value, (dict, types.MappingProxyType)):
        yield from ([_describe(key, depth), _describe(item, depth)] for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        yield from (_describe(item, depth) for item in value)
    elif isinstance(value, (set, frozenset)):
        yield from sorted((_describe(item, depth) for item in value), key=repr)


def _unwrapped(function: types.FunctionType) -> types.FunctionType:
    """Return the function inside a wrapper of Dynamo's, or the function itself."""
    if function.__globals__.get("__name__") == _NOTING:  # `__module__` also names the module of a wrapped function
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if name in ("init", "setstate") and isinstance(cell.cell_contents, types.FunctionType):
                return cell.cell_contents
    return function


def _captures(function: types.FunctionType, depth: int) -> list[Any]:
    """Return the defaults of a function and its closed-over values."""
    keywords = sorted((function.__kwdefaults__ or {}).items())
    return [
        [_describe(item, depth + 1) for item in function.__defaults__ or ()],
        [[name, _describe(item, depth + 1)] for name, item in keywords],
        [_describe(item, depth + 1) for item in closed_over(function)],
    ]
