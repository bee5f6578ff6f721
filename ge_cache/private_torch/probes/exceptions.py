"""Dynamo hooks for reads of exception messages by the traced code.

Where Python would raise, Dynamo raises an exception of the same class, whose message often differs: reading it refuses
the trace. Merely catching the exception is allowed.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

from gearcache.ge_cache.private_torch.renamed import name_here

#: Functions that raise for the traced code, in torch 2.13 and 2.14.
_RAISING = ("_raise_exception_variable", "do_raise")
_OF_KEY = "it makes a text of a `KeyError`, which Python makes by `repr()` and a trace does not: make a text of the key"


def watched_exceptions(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of functions that raise exceptions, and make texts of them."""
    from torch._dynamo.exc import raise_observed_exception
    from torch._dynamo.symbolic_convert import ExceptionStack
    from torch._dynamo.variables import ExceptionVariable  # type: ignore[attr-defined]
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.lists import BaseListVariable, TupleVariable

    stack: Any = ExceptionStack
    errors: Any = ExceptionVariable
    lists: Any = BaseListVariable
    setting = name_here(stack, "set_current_exception")
    set_exception, init_error, item_of = getattr(stack, setting), errors.__init__, lists.getitem_const

    @functools.wraps(set_exception)
    def set_current_exception(self: Any, val: Any, *arguments: Any, **keywords: Any) -> None:
        set_exception(self, val, *arguments, **keywords)
        if isinstance(val, errors) and not hasattr(val, "gearcache_raised"):
            val.gearcache_raised = True
            if not _is_right(val) and _is_raised_by_dynamo():
                val.args = _Unread(facts, val)

    @functools.wraps(init_error)
    def init(self: Any, exc_type: Any, args: Any, *rest: Any, **keywords: Any) -> None:
        init_error(self, exc_type, args, *rest, **keywords)
        if text_of is None and is_of_key(self):
            self.args = _Key(facts, args)

    def is_of_key(error: Any) -> bool:
        """Return whether the text of an error is that of its key's `repr()`, which Dynamo does not make."""
        return error.exc_type.__str__ is KeyError.__str__ and len(error.args) == 1

    text_of = getattr(errors, "tp_str_impl", None)  # since torch 2.14

    def tp_str_impl(self: Any, tx: Any) -> Any:
        assert text_of is not None
        if is_of_key(self):
            facts.refuse(_OF_KEY)
        return text_of(self, tx)

    @functools.wraps(item_of)
    def getitem_const(self: Any, tx: Any, arg: Any) -> Any:
        index = arg.as_python_constant() if isinstance(self, TupleVariable) and arg.is_python_constant() else None
        if type(index) is int and not -len(self.items) <= index < len(self.items):
            raise_observed_exception(IndexError, tx, args=["tuple index out of range"])
        return item_of(self, tx, arg)

    describe = errors.debug_repr

    @functools.wraps(describe)
    def debug_repr(self: Any) -> Any:
        """Describe an exception in a message of Dynamo's own, which does not count as a read by the method."""
        arguments = self.args
        if not isinstance(arguments, _Unread) or _is_for_method():
            return describe(self)
        self.args = list.copy(arguments)
        try:
            return describe(self)
        finally:
            self.args = arguments

    def length(function: Any) -> Any:
        @functools.wraps(function)
        def checked(self: Any, tx: Any) -> Any:
            if hasattr(self.python_type(), "__len__"):  # Dynamo has no answer, and claims that Python has none
                facts.refuse(
                    f"it asks for the length of a `{self.python_type_name()}` that is made when the graph runs"
                )
                facts.raise_refusals()
            return function(self, tx)

        return checked

    yield stack, setting, set_current_exception
    yield errors, "__init__", init
    yield errors, "debug_repr", debug_repr
    if text_of is not None:
        yield errors, "tp_str_impl", functools.wraps(text_of)(tp_str_impl)
    yield lists, "getitem_const", getitem_const
    variable: Any = VariableTracker
    for name in (name_here(variable, "sq_length"), name_here(variable, "mp_length")):
        yield VariableTracker, name, length(vars(VariableTracker)[name])


class _Unread(list[Any]):
    """The arguments of an exception that Dynamo made, or words in its own way: reading them refuses the trace."""

    def __init__(self, facts: Any, exception: Any) -> None:
        super().__init__(exception.args)
        self._facts = facts
        self._name = exception.python_type().__name__

    def _refuse(self) -> None:
        self._facts.refuse(
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

    def __init__(self, facts: Any, arguments: Any) -> None:
        super().__init__(arguments)
        self._facts = facts

    def __getitem__(self, index: Any) -> Any:
        if index == 0:
            self._facts.refuse(_OF_KEY)
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
