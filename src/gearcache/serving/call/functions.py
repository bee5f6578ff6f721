"""The functions behind cached methods: without torch's decorators and with a named instance; which are refused."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from pickle import PicklingError
from typing import Any

import torch
from msgspec import Struct

from gearcache.errors import CaptureError, UnsupportedMethod
from gearcache.guards.dispatch.tensors.native import decorating_context


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


#: The parameter of a function that `attach` writes for the number of arguments given by position, as a decorator inside
#: may look at its `args`; and the mark of such a function.
BY_POSITION, COUNTS_POSITIONS = "arguments_by_position", "gearcache_counts_positions"


def with_count(function: types.MethodType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of a call, with the number of the others for a function that counts them."""
    return kwargs | {BY_POSITION: len(args)} if args and hasattr(function, COUNTS_POSITIONS) else kwargs


NO_GRAD, INFERENCE_MODE = "no_grad", "inference_mode"


class DecoratedMethod(Struct, frozen=True):
    """A bound method as the user wrote it, without its decorators, and the mode that the decorators set."""

    original: types.MethodType
    function: types.MethodType
    #: `NO_GRAD`, `INFERENCE_MODE`, or empty if there is no such decorator.
    mode: str


def undecorated(method: types.MethodType) -> DecoratedMethod:
    """Look through `torch.no_grad()`, `torch.inference_mode()` and similar decorators.

    `CaptureError` for a decorator that turns autograd on, or that a graph cannot honour.
    """
    inner: Any = method.__func__
    is_off, is_inference = False, False
    while getattr(inner, "__wrapped__", None) is not None and (context := decorating_context(inner)) is not None:
        if isinstance(context, torch.inference_mode):
            is_off = is_inference = bool(context.mode)
        elif isinstance(context, (torch.no_grad, torch.enable_grad)):
            is_off = isinstance(context, torch.no_grad)
        elif isinstance(context, torch.set_grad_enabled):
            is_off = not context.mode
        else:
            name = f"{type(context).__module__}.{type(context).__qualname__}"
            raise CaptureError(_name(method), f"it is decorated with `{name}`; enter that around the call instead")
        if not is_off:
            raise CaptureError(
                _name(method), "its decorator turns autograd on, and a cached call records nothing; leave it out"
            )
        inner = inner.__wrapped__
    mode = INFERENCE_MODE if is_inference else NO_GRAD if is_off else ""
    return DecoratedMethod(method, types.MethodType(inner, method.__self__), mode)


def _name(method: types.MethodType) -> str:
    return f"{type(method.__self__).__name__}.{method.__func__.__name__}"
