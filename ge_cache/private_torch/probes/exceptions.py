"""Refuse reads of exception messages by the traced code.

Where Python would raise, Dynamo raises an exception of the same class, whose message often differs. So a trace may
make, raise and catch an exception, but not read its text or its arguments.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

from torch._dynamo.variables import ExceptionVariable  # type: ignore[attr-defined]
from torch._dynamo.variables.base import VariableTracker

from gearcache.ge_cache.private_torch.probe import Probes

#: Their arguments are those of Python: with them a generator returns a value, or is closed.
_OF_GENERATORS = (StopIteration, GeneratorExit)
probes = Probes()


@probes.at(ExceptionVariable, "__init__")
def made(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Refuse reads of what an exception says."""
    original(self, *arguments, **keywords)
    if self.exc_type not in _OF_GENERATORS:
        self.args = _Unread(trace, self)


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


@probes.at(VariableTracker, "sq_length", "mp_length")
def measured(trace: Any, original: Any, self: Any, tx: Any) -> Any:
    """Refuse a length for which Dynamo has no answer, claiming that Python has none."""
    if hasattr(self.python_type(), "__len__"):
        cause = f"it asks for the length of a `{self.python_type_name()}` that is made when the graph runs"
        trace.refuse(cause, at_once=True)
    return original(self, tx)


class _Unread(list[Any]):
    """The arguments of an exception: reading them refuses the trace."""

    def __init__(self, trace: Any, exception: Any) -> None:
        super().__init__(exception.args)
        self._trace = trace
        self._name = exception.exc_type.__name__  # `python_type()` has no answer yet in torch 2.15

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


def _is_for_method() -> bool:
    """Return whether an exception is being described for a `repr()` of the traced code."""
    frame: types.FrameType | None = sys._getframe(2)
    for _ in range(4):  # wrappers may be in between
        if frame is not None and frame.f_code.co_name in ("repr_impl", "tp_repr_impl"):
            return True
        frame = frame.f_back if frame is not None else None
    return False
