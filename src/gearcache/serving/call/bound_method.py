"""The bound method behind a cached method, without torch's decorators, and its parameters; which are refused."""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping
from functools import cached_property
from inspect import Parameter
from pickle import PicklingError
from typing import Any

import torch
from msgspec import Struct

from gearcache.errors import CaptureError, UnsupportedMethod
from gearcache.guards.access import Scope
from gearcache.guards.dispatch.tensors.native import decorating_context

#: The autograd modes that decorators set for a method.
NO_GRAD, INFERENCE_MODE = "no_grad", "inference_mode"
#: The parameter of a function that `attach` writes for the number of arguments given by position, as a decorator inside
#: may look at its `args`; and the mark of such a function.
BY_POSITION, COUNTS_POSITIONS = "arguments_by_position", "gearcache_counts_positions"
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class BoundMethod(Struct, frozen=True, eq=False):
    """A bound method, and the function in it that graphs are made of."""

    #: As its user wrote it, with all decorators.
    written: types.MethodType
    #: Without torch's decorators, and with the instance as a parameter of its own.
    method: types.MethodType
    #: `NO_GRAD` or `INFERENCE_MODE`, if a decorator sets that for the method; else empty.
    mode: str = ""

    @staticmethod
    def of(written: types.MethodType) -> BoundMethod:
        """Look through torch's decorators; `CaptureError` for one that a graph cannot honour."""
        inner, mode = undecorated(written)
        return BoundMethod(written, _with_named_instance(inner), mode)

    @property
    def function(self) -> Any:
        """The function of which graphs are made, a `types.FunctionType`, which a type checker would bind."""
        return self.method.__func__

    @property
    def instance(self) -> Any:
        """The module whose method it is."""
        return self.method.__self__

    @property
    def instance_name(self) -> str:
        """The name of the parameter that the instance is."""
        return str(self.function.__code__.co_varnames[0])

    def signature(self) -> MethodSignature:
        """Return the present parameters: a program may give its function other defaults."""
        return MethodSignature(self.method)

    def scope(self, arguments: Mapping[str, Any]) -> Scope:
        """Return the scope of access paths for a call with some arguments."""
        function = self.function
        closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        return Scope({self.instance_name: self.instance, **arguments}, function.__globals__, closure)

    def with_count(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments of a call, with the number of the others for a function that counts them."""
        return kwargs | {BY_POSITION: len(args)} if args and hasattr(self.function, COUNTS_POSITIONS) else kwargs


class MethodSignature:
    """The parameters of a method at one moment. `inspect` takes long to tell them, so it is asked once for a call."""

    def __init__(self, method: types.MethodType) -> None:
        self._method = method

    @cached_property
    def outer(self) -> inspect.Signature:
        """The parameters that calls are bound to, the instance first: of a decorator, often `*args, **kwargs`."""
        return inspect.signature(self._method.__func__, follow_wrapped=False)

    @cached_property
    def inner(self) -> inspect.Signature:
        """The parameters that users know, without the instance: those of the function inside all decorators."""
        return inspect.signature(self._method)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by parameter, the instance first, with defaults; the method's `TypeError`."""
        bound = self.outer.bind(self._method.__self__, *args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def place_of(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, Any] | None:
        """Return the path and the value of the argument of a name in a call; None if the call does not give it.

        Behind a wrapper, `input_ids` is `kwargs['input_ids']` in a call by keyword, and `args[0]` in one by position.
        """
        outer = self.outer.parameters
        if name in outer:
            return (name, arguments[name]) if name in arguments else None
        kinds = {parameter.kind: parameter.name for parameter in outer.values()}
        by_keyword = kinds.get(Parameter.VAR_KEYWORD)
        if by_keyword is not None and name in arguments[by_keyword]:
            return f"{by_keyword}[{name!r}]", arguments[by_keyword][name]
        by_position = kinds.get(Parameter.VAR_POSITIONAL)
        inner = [each.name for each in self.inner.parameters.values() if each.kind in _POSITIONAL]
        if by_position is not None and name in inner:
            index = 1 + inner.index(name) - list(outer).index(by_position)  # 1: the instance
            if 0 <= index < len(arguments[by_position]):
                return f"{by_position}[{index}]", arguments[by_position][index]
        return None

    def at_their_places(self, values: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a mapping of argument paths; paths to arguments behind a wrapper become their places in a call.

        A path that begins with a parameter of the wrapper itself, or with a name that the call does not give, is not
        changed.
        """
        if not values:
            return dict(values) if values is not None else None
        return {self._at_its_place(path, arguments): value for path, value in values.items()}

    def _at_its_place(self, path: str, arguments: Mapping[str, Any]) -> str:
        match = re.match(r"\w+", path)
        if match is None or match[0] in self.outer.parameters:
            return path
        place = self.place_of(match[0], arguments)
        return path if place is None else place[0] + path[match.end() :]


def undecorated(method: types.MethodType) -> tuple[types.MethodType, str]:
    """Look through `torch.no_grad()`, `torch.inference_mode()` and similar decorators; also returns the mode they set.

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
    return types.MethodType(inner, method.__self__), mode


def _name(method: types.MethodType) -> str:
    return f"{type(method.__self__).__name__}.{method.__func__.__name__}"


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


def _with_named_instance(function: types.MethodType) -> types.MethodType:
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


def owner_of(function: Callable[..., Any], cls: type) -> tuple[type, str]:
    """Return the base class that has a method of a class, and its name there; `PicklingError` if no class has it."""
    for base in cls.__mro__:
        for name, member in vars(base).items():
            inner = getattr(member, "function", member)
            while isinstance(inner, types.FunctionType):
                if inner in (function, getattr(function, "__wrapped__", None)):
                    return base, name
                inner = getattr(inner, "__wrapped__", None)
    raise PicklingError(f"`{function.__qualname__}` is no method of `{cls.__qualname__}`, so it cannot be pickled")
