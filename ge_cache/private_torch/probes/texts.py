"""Refuse texts of anything but constants, and what exceptions say: Python, or another process, may word them otherwise.

For an object that the method makes, a trace has an example whose `__init__` has not run; the text of another object may
have its address. Where Python would raise, Dynamo raises an exception of the same class, with other words.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import torch
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.utils import specialize_symnode
from torch._dynamo.variables import ExceptionVariable  # type: ignore[attr-defined]
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.dicts import ConstDictVariable
from torch._dynamo.variables.lists import BaseListVariable
from torch._dynamo.variables.misc import StringFormatVariable
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable
from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

from gearcache.ge_cache.private_torch.probe import Probes, overriding

#: What has the same text in each process.
_WORDED = {bool, str, bytes, int, float, complex, type(None), type(...), range}
_WORDED |= {torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size}
#: Their arguments are those of Python: with them a generator returns a value, or is closed.
_OF_GENERATORS = (StopIteration, GeneratorExit)
specialize: Any = specialize_symnode
probes = Probes()


@probes.at(InstructionTranslatorBase, "_format_value")
def formatted(trace: Any, original: Any, self: Any, fmt_spec: Any, flags: int) -> None:
    """Look at what an f-string is made of; a number by its value: Dynamo forgets `05d`, or gives away the number."""
    value = self.stack[-1].realize()
    if isinstance(value, SymNodeVariable):
        value = self.stack[-1] = specialize(value)
    _check(trace, value)
    original(self, fmt_spec, flags)


@probes.at(ConstantVariable, "call_method")
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Look at what `"{}".format(...)` gets."""
    if name == "format":
        _check(trace, *args, *kwargs.values())
    return original(self, tx, name, args, kwargs)


@probes.at(BuiltinVariable, "call_format")
def called_format(trace: Any, original: Any, self: Any, tx: Any, text: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Refuse `format(n, "05d")`, which Dynamo takes for `"...".format(...)`."""
    if self.fn is format:
        trace.refuse('it calls `format()`: use an f-string, such as `f"{n:05d}"`', at_once=True)
    return original(self, tx, text, *args, **kwargs)


@probes.at(BuiltinVariable, "call_str")
def called_str(trace: Any, original: Any, self: Any, tx: Any, arg: Any) -> Any:
    """Answer `str(n)` by the value, which Dynamo does not know."""
    if isinstance(arg, SymNodeVariable):
        return ConstantVariable.create(str(specialize(arg).as_python_constant()))
    _check(trace, arg)
    return original(self, tx, arg)


@probes.at(BuiltinVariable, "call_method")
def called_method_of_class(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Look at what `object.__repr__(thing)` gets."""
    if name in ("__repr__", "__str__", "__format__"):
        _check(trace, *args)
    return original(self, tx, name, args, kwargs)


@probes.at_each(lambda: overriding(VariableTracker, "repr_impl"))
def described(trace: Any, original: Any, self: Any, tx: Any) -> Any:
    """Look at what `repr()` gets, or `thing.__repr__()`."""
    _check(trace, self)
    return original(self, tx)


@probes.at(ExceptionVariable, "__init__")
def made(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Refuse reads of what an exception says, by whatever way they come."""
    original(self, *arguments, **keywords)
    if self.exc_type not in _OF_GENERATORS:
        self.args = _Unread(trace, self)


@probes.at(ExceptionVariable, "debug_repr")
def named(trace: Any, original: Any, self: Any) -> Any:
    """Describe an exception in a message of Dynamo's own, which does not count as a read by the method."""
    arguments = self.args
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


def _check(trace: Any, *variables: Any) -> None:
    for variable in variables:
        if not _is_worded(variable.realize()):
            _refuse(trace, variable.realize())


def _refuse(trace: Any, variable: Any) -> None:
    trace.refuse(
        f"it reads the text of a `{variable.python_type_name()}`, which Python, or another process, may word "
        "otherwise; make it of numbers, texts and classes"
    )


def _is_worded(variable: Any) -> bool:
    """Whether something has one text: a constant, a container of such, or what the graph words when it runs."""
    if isinstance(variable, UserDefinedObjectVariable):
        return isinstance(variable.value, enum.Enum)
    if isinstance(variable, BaseListVariable):
        return all(_is_worded(item.realize()) for item in variable.items)
    if type(variable) is ConstDictVariable:
        return all(_is_worded(part.realize()) for key, item in variable.items.items() for part in (key.vt, item))
    if isinstance(variable, (SymNodeVariable, StringFormatVariable, TensorVariable)):
        return True
    if not variable.is_python_constant():
        return False
    value = variable.as_python_constant()
    return type(value) in _WORDED or isinstance(value, (type, enum.Enum))
