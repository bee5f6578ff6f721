"""Questions to torch and the interpreter that every call repeats, because a trace treated the answers as constants."""

from __future__ import annotations

import abc
import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from gearcache.guards.evidence.kinds import reached
from gearcache.guards.evidence.members import is_immutable
from gearcache.guards.evidence.names import module_of, name_of

#: Types whose values can be compared on every call.
_ANSWERS = (bool, int, str, float, type(None), torch.dtype)
_REACHED = "what it uses"


#: By what is asked: a function and its argument, or an object and the name of its attribute.
Questions = dict[tuple[Any, Any], Callable[[], Any]]


def of_abstract_classes() -> Questions:
    """Ask whether a class was registered with an abstract one."""
    return {(abc.get_cache_token, None): abc.get_cache_token}


def of_call(function: Any, argument: Any) -> Questions:
    """Ask for the state of torch, the interpreter or a logger again on every call.

    Functions of a program are not called: they may do anything.
    """
    if module_of(function).split(".")[0] not in ("torch", "sys", "logging") or function.__name__ == "is_available":
        return {}
    question = function if argument is None else functools.partial(function, argument)
    return {(function, argument): question} if type(question()) in _ANSWERS else {}


def of_settings(value: Any, names: Iterable[str]) -> Questions:
    """Ask for attributes of an object again, if it is an object of torch that reads them from elsewhere."""
    if not holds_settings(value):
        return {}
    return {
        (value, name): functools.partial(getattr, value, name)
        for name in names
        if type(getattr(value, name, ...)) in _ANSWERS
    }


def of_reached(function: Any) -> Questions:
    """Ask what a function uses, see the kind of check `reached`."""
    return {(function, _REACHED): lambda: repr(reached(function))}


def text_of(asked: tuple[Any, Any]) -> str:
    """Return what is asked in words."""
    function, argument = asked
    if function is abc.get_cache_token:
        return "which classes are registered with an abstract class"
    if argument is _REACHED:
        return f"what `{name_of(function)}` uses"
    if holds_settings(function):
        return f"`{getattr(function, '__name__', type(function).__qualname__)}.{argument}`"
    return f"what `{name_of(function)}` returns"


def holds_settings(value: Any) -> bool:
    """Return whether an object of torch reads its attributes from elsewhere, as `torch.backends.cudnn` does."""
    cls = type(value)
    is_own = module_of(cls).split(".")[0] == "torch" and not is_immutable(cls)
    return is_own and not isinstance(value, (torch.Tensor, torch.nn.Module, types.FunctionType))
