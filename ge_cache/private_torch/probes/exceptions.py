"""Refuse reads of exception messages by the traced code.

Where Python would raise, Dynamo raises an exception of the same class, whose message often differs: reading it refuses
the trace. Merely catching the exception is allowed.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

from torch._dynamo.symbolic_convert import ExceptionStack
from torch._dynamo.variables import ExceptionVariable  # type: ignore[attr-defined]
from torch._dynamo.variables.base import VariableTracker

from gearcache.ge_cache.private_torch.probe import Probes

#: Functions that raise for the traced code, in torch 2.13 and 2.14.
_RAISING = ("_raise_exception_variable", "do_raise")
#: Marks an exception that was raised before.
_RAISED = "gearcache_raised"
#: Makes the text of an exception since torch 2.14.
_TEXT = "tp_str_impl"
_OF_KEY = "it makes a text of a `KeyError`, which Python makes by `repr()` and a trace does not: make a text of the key"


probes = Probes()


@probes.at(ExceptionStack, "set_current_exception")
def raised(trace: Any, original: Any, self: Any, val: Any, *arguments: Any, **keywords: Any) -> None:
    """Refuse reads of an exception that Dynamo raises, unless it has the arguments of Python's."""
    original(self, val, *arguments, **keywords)
    if isinstance(val, ExceptionVariable) and _RAISED not in vars(val):
        vars(val)[_RAISED] = True
        if not _is_right(val) and _is_raised_by_dynamo():
            val.args = _Unread(trace, val)


@probes.at(ExceptionVariable, "__init__")
def made(trace: Any, original: Any, self: Any, exc_type: Any, args: Any, *rest: Any, **keywords: Any) -> None:
    """Refuse texts of a `KeyError`."""
    original(self, exc_type, args, *rest, **keywords)
    if not hasattr(ExceptionVariable, _TEXT) and _is_of_key(self):
        self.args = _Key(trace, args)


@probes.at(ExceptionVariable, "debug_repr")
def described(trace: Any, original: Any, self: Any) -> Any:
    """Describe an exception in a message of Dynamo's own, which does not count as a read by the method."""
    arguments = self.args
    if not isinstance(arguments, _Unread) or _is_for_method():
        return original(self)
    self.args = list.copy(arguments)
    try:
        return original(self)
    finally:
        self.args = arguments


@probes.at_each(lambda: [(ExceptionVariable, _TEXT)] if hasattr(ExceptionVariable, _TEXT) else [])
def made_text(trace: Any, original: Any, self: Any, tx: Any) -> Any:
    """Refuse texts of a `KeyError`."""
    if _is_of_key(self):
        trace.refuse(_OF_KEY)
    return original(self, tx)


@probes.at(VariableTracker, "sq_length", "mp_length")
def measured(trace: Any, original: Any, self: Any, tx: Any) -> Any:
    """Refuse a length for which Dynamo has no answer, claiming that Python has none."""
    if hasattr(self.python_type(), "__len__"):
        cause = f"it asks for the length of a `{self.python_type_name()}` that is made when the graph runs"
        trace.refuse(cause, at_once=True)
    return original(self, tx)


def _is_of_key(error: Any) -> bool:
    """Return whether the text of an error is that of its key's `repr()`, which Dynamo does not make."""
    return error.exc_type.__str__ is KeyError.__str__ and len(error.args) == 1


class _Unread(list[Any]):
    """The arguments of an exception that Dynamo made, or words in its own way: reading them refuses the trace."""

    def __init__(self, trace: Any, exception: Any) -> None:
        super().__init__(exception.args)
        self._trace = trace
        self._name = exception.python_type().__name__

    def _refuse(self) -> None:
        self._trace.refuse(
            f"it reads the text of a `{self._name}`, which a trace words in its own way: test for the cause before, or "
            "catch the exception without reading it"
        )

    def __iter__(self) -> Iterator[Any]:
        self._refuse()
        return super().__iter__()

    def __len__(self) -> int:
        self._refuse()
        return super().__len__()


class _Key(list[Any]):
    """The arguments of a `KeyError` until torch 2.13, which reads only the first one, when it makes the text."""

    def __init__(self, trace: Any, arguments: Any) -> None:
        super().__init__(arguments)
        self._trace = trace

    def __getitem__(self, index: Any) -> Any:
        if index == 0:
            self._trace.refuse(_OF_KEY)
        return super().__getitem__(index)


def _is_raised_by_dynamo() -> bool:
    """Return whether Dynamo, or a function that it traces in place of a library's, raises now."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "raise_observed_exception":
            return True
        if frame.f_code.co_name in _RAISING and not _is_called_to_raise(frame):
            return "polyfills" in frame.f_locals["self"].f_code.co_filename
        frame = frame.f_back
    return False


def _is_for_method() -> bool:
    """Return whether an exception is being described for a `repr()` of the traced code."""
    frame: types.FrameType | None = sys._getframe(2)
    for _ in range(4):  # wrappers may be in between
        if frame is not None and frame.f_code.co_name in ("repr_impl", "tp_repr_impl"):
            return True
        frame = frame.f_back if frame is not None else None
    return False


def _is_right(exception: Any) -> bool:
    """Return whether an exception of Dynamo's has the arguments that Python's would have."""
    kind = exception.python_type()
    return kind in (StopIteration, GeneratorExit) or (kind is KeyError and len(exception.args) == 1)


def _is_called_to_raise(frame: types.FrameType) -> bool:
    """Return whether a function raises for Dynamo itself instead of the traced code, as in torch 2.14."""
    caller = frame.f_back
    return caller is not None and caller.f_code.co_name == "raise_observed_exception"
