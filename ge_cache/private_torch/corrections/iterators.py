"""Consume iterators, and test membership, as Python does; refuse iterators that leave the method.

For Dynamo an iterator of constants is a constant: a function that receives it leaves it unconsumed. `yield from` gives
None where the generator returned a value, `range` accepts a float, and `in` gives whatever `__contains__` returned.

Dynamo rebuilds an iterator from the items that were left when the trace ended: later changes of its container are lost,
and so are its type and the effects of a generator. A generator that is left early never reaches its `finally`.
"""

from __future__ import annotations

import collections.abc
import sys
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.symbolic_convert import ExceptionStack, InstructionTranslatorBase
from torch._dynamo.variables.builder import SourcelessBuilder
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.functions import LocalGeneratorObjectVariable
from torch._dynamo.variables.iter import CountIteratorVariable, IteratorVariable, RepeatIteratorVariable
from torch._dynamo.variables.lists import RangeIteratorVariable, RangeVariable, TupleIteratorVariable
from torch._dynamo.variables.user_defined import UserDefinedClassVariable, UserDefinedObjectVariable

from gearcache.ge_cache.private_torch.probe import Place, Probes, overriding
from gearcache.ge_cache.private_torch.renamed import name_here

#: Its `try` has only an `except IndexError`, which the end of a generator does not trigger.
_SEQUENCE = collections.abc.Sequence.__iter__.__code__
#: What they give is known: the items of an immutable tuple, numbers, one object.
_HARMLESS = (CountIteratorVariable, RangeIteratorVariable, RepeatIteratorVariable, TupleIteratorVariable)
probes = Probes()


class _Generators(Struct):
    """The generators that a trace has made."""

    made: list[Any] = field(default_factory=list)


@probes.at(InstructionTranslatorBase, "jump")
def jumped(trace: Any, original: Any, self: Any, inst: Any) -> None:
    """Leave a `yield from` with the return value of its generator, which the `StopIteration` holds."""
    # torch 2.14 does so itself, and has dropped the exception by now.
    if getattr(inst, "opname", None) == "SEND" and self.exn_vt_stack._current_exception is not None:
        exception = getattr(self.exn_vt_stack, name_here(ExceptionStack, "get_current_exception"))()
        if exception.python_type() is StopIteration and exception.args:
            self.pop()
            self.push(exception.args[0])
        self.exn_vt_stack.clear_current_exception()
    original(self, inst)


# Since torch 2.15 iterators of tuples and of reversed lists have classes of their own.
@probes.at_each(lambda: overriding(IteratorVariable, "as_python_constant"))
def taken_for_constant(trace: Any, original: Any, self: Any) -> Any:
    """An iterator is not a constant: its receiver consumes it."""
    raise NotImplementedError


@probes.at(BuiltinVariable, "call_range")
def made_range(trace: Any, original: Any, self: Any, tx: Any, *args: Any) -> Any:
    """Refuse a float, for which Python raises, and other constants, which Python asks for their `__index__`."""
    if any(arg.is_python_constant() and type(arg.as_python_constant()) is not int for arg in args):
        trace.refuse(
            "it makes a `range()` of a bool, a float or a number of a class of its own: make that an `int(...)`",
            at_once=True,
        )
    return original(self, tx, *args)


@probes.at(RangeVariable, "sq_contains")
def has_number(trace: Any, original: Any, self: Any, tx: Any, item: Any) -> Any:
    """Look for a constant in a range."""
    if item.is_python_constant() and self.is_python_constant():
        return ConstantVariable.create(item.as_python_constant() in self.as_python_constant())
    return original(self, tx, item)


@probes.at(UserDefinedClassVariable, "sq_contains")
@probes.at(UserDefinedObjectVariable, "sq_contains")
def has_item(trace: Any, original: Any, self: Any, tx: Any, item: Any) -> Any:
    """Make a bool of what `__contains__` returns."""
    answer = original(self, tx, item)
    if answer.python_type() is bool:
        return answer
    return SourcelessBuilder.create(tx, bool).call_function(tx, [answer], {})


@probes.at(LocalGeneratorObjectVariable, "__init__")
def made_generator(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Remember a generator."""
    original(self, *arguments, **keywords)
    trace.state(_Generators).made.append(self)


@probes.at(OutputGraph, "compile_subgraph")
def ended(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> Any:
    """Refuse generators that are left early: the trace ends here."""
    for variable in trace.state(_Generators).made:
        if _is_left_early(variable):
            name = getattr(variable.code, "co_qualname", variable.code.co_name)  # Python 3.10's name has no path
            trace.refuse(f"it leaves the generator `{name}` in a `try` or `with` whose end Python would run")
    return original(self, *arguments, **keywords)


def _iterators() -> Iterator[Place]:
    if "reconstruct" in vars(LocalGeneratorObjectVariable):
        yield LocalGeneratorObjectVariable, "reconstruct"
    yield from overriding(IteratorVariable, "reconstruct")


@probes.at_each(_iterators)
def given_away(trace: Any, original: Any, self: Any, codegen: Any) -> None:
    """Refuse an iterator that leaves the method."""
    if type(self) not in _HARMLESS:
        trace.refuse(f"an iterator leaves it ({self.python_type().__name__}), which cannot be stored: give away a list")
    original(self, codegen)


def _is_outside(variable: Any) -> bool:
    """Return whether a generator has not begun, or has ended."""
    if hasattr(variable, "_is_generator_exhausted"):  # until torch 2.13
        return bool(variable._is_generator_exhausted() or variable._is_generator_just_started())
    state = variable.inline_tracer.frame_state
    return bool(variable._frame_state_finished() or state is type(state).FRAME_CREATED)


def _is_left_early(variable: Any) -> bool:
    """Return whether a generator has begun, has not ended, and is inside a `try` or `with`."""
    if _is_outside(variable):
        return False
    if variable.code is _SEQUENCE:
        return False
    if sys.version_info < (3, 11):  # there is no exception table, but a stack of open blocks
        return bool(variable.inline_tracer.block_stack)
    entry = getattr(variable.inline_tracer.current_instruction, "exn_tab_entry", None)
    # From Python 3.12 on, each `yield from` is inside a handler of its own, and every generator inside one that
    # converts `StopIteration` to another error.
    while entry is not None and entry.target.opname == "CLEANUP_THROW":
        entry = entry.target.exn_tab_entry
    return entry is not None and entry.target.opname != "CALL_INTRINSIC_1"
