"""The functions behind cached methods: which are refused, whose instance is named, and which class has them."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from pickle import PicklingError
from typing import Any

from gearcache.errors import UnsupportedMethod


def check_kind(function: Callable[..., Any]) -> None:
    """Refuse a method whose call returns something that runs later, instead of a result."""
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
    """Return a method whose instance is a separate parameter: all paths to the instance's attributes begin there.

    `def wrapper(*args, **kwargs)`, as decorators make it, takes the instance as one of its arguments.
    """
    original: Any = function.__func__
    if original.__code__.co_argcount:
        return function

    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return original(self, *args, **kwargs)

    function_with_self = types.FunctionType(method.__code__, original.__globals__, closure=method.__closure__)
    return types.MethodType(functools.update_wrapper(function_with_self, original), function.__self__)


def place_of(cls: type, function: Callable[..., Any]) -> tuple[type, str]:
    """Return the class of a method, and its name there; `PicklingError` if no class has it."""
    for base in cls.__mro__:
        for name, member in vars(base).items():
            inner = getattr(member, "function", member)
            while isinstance(inner, types.FunctionType):
                if inner in (function, getattr(function, "__wrapped__", None)):
                    return base, name
                inner = getattr(inner, "__wrapped__", None)
    raise PicklingError(f"`{function.__qualname__}` is no method of `{cls.__qualname__}`, so it cannot be pickled")
