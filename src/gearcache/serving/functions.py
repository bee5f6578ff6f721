"""The functions behind cached methods: which are refused, whose instance is named, and where a class holds them."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from pickle import PicklingError
from typing import Any

from gearcache.errors import UnsupportedMethod


def check_kind(function: Callable[..., Any]) -> None:
    """Refuse a method whose call does not give a result but something that runs later."""
    inner = inspect.unwrap(function)
    kinds = {
        "a generator": inspect.isgeneratorfunction,
        "a coroutine": inspect.iscoroutinefunction,
        "an asynchronous generator": inspect.isasyncgenfunction,
    }
    for kind, is_kind in kinds.items():
        if is_kind(function) or is_kind(inner):
            raise UnsupportedMethod(
                f"`{inner.__qualname__}` is {kind}, whose body runs after the call: move what it computes into a "
                "method of its own and cache that"
            )


def with_named_instance(function: types.MethodType) -> types.MethodType:
    """Return a method whose instance is a parameter of its own: all paths to what it holds begin there.

    `def wrapper(*args, **kwargs)`, as decorators make it, takes it among other arguments.
    """
    original: Any = function.__func__
    if original.__code__.co_argcount:
        return function

    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return original(self, *args, **kwargs)

    named = types.FunctionType(method.__code__, original.__globals__, closure=method.__closure__)
    return types.MethodType(functools.update_wrapper(named, original), function.__self__)


def place_of(cls: type, function: Callable[..., Any]) -> tuple[type, str]:
    """Return which class holds a method, and under which name; `PicklingError` where none does."""
    for base in cls.__mro__:
        for name, member in vars(base).items():
            inner = getattr(member, "function", member)
            while isinstance(inner, types.FunctionType):
                if inner in (function, getattr(function, "__wrapped__", None)):
                    return base, name
                inner = getattr(inner, "__wrapped__", None)
    raise PicklingError(f"`{function.__qualname__}` is no method of `{cls.__qualname__}`, so it cannot be pickled")
