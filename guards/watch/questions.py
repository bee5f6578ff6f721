"""Questions to torch and the interpreter that every call repeats, because a trace treated the answers as constants."""

from __future__ import annotations

import abc
import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from gearcache.guards.evidence.members import is_immutable
from gearcache.guards.evidence.names import module_of, name_of

#: Types whose values can be compared on every call.
_ANSWERS = (bool, int, str, float, type(None), torch.dtype)


class Questions:
    """Callables without arguments, each once, by the function and its argument, or the object and its attribute."""

    def __init__(self) -> None:
        self.asked: dict[tuple[Any, Any], Callable[[], Any]] = {}

    def include(self, other: Questions) -> None:
        """Add the questions of another one."""
        self.asked.update(other.asked)

    def add_abstract_classes(self) -> None:
        """Ask whether a class was registered with an abstract one."""
        self.asked[abc.get_cache_token, None] = abc.get_cache_token

    def add_call(self, function: Any, argument: Any) -> None:
        """Ask for the state of torch, the interpreter or a logger again on every call.

        Functions of a program are not called: they may do anything.
        """
        if module_of(function).split(".")[0] not in ("torch", "sys", "logging") or function.__name__ == "is_available":
            return
        question = function if argument is None else functools.partial(function, argument)
        if type(question()) in _ANSWERS:
            self.asked[function, argument] = question

    def add_settings(self, value: Any, names: Iterable[str]) -> None:
        """Ask for attributes of an object again, if it is an object of torch that reads them from elsewhere."""
        if holds_settings(value):
            for name in names:
                if type(getattr(value, name, ...)) in _ANSWERS:
                    self.asked[value, name] = functools.partial(getattr, value, name)

    def text(self, number: int) -> str:
        """Return a question as text."""
        function, argument = list(self.asked)[number]
        if function is abc.get_cache_token:
            return "which classes are registered with an abstract class"
        if holds_settings(function):
            return f"`{getattr(function, '__name__', type(function).__qualname__)}.{argument}`"
        return f"what `{name_of(function)}` returns"


def holds_settings(value: Any) -> bool:
    """Return whether an object of torch reads its attributes from elsewhere, as `torch.backends.cudnn` does."""
    cls = type(value)
    is_own = module_of(cls).split(".")[0] == "torch" and not is_immutable(cls)
    return is_own and not isinstance(value, (torch.Tensor, torch.nn.Module, types.FunctionType))
