"""Consume iterators, and test membership, as Python does.

For Dynamo an iterator of constants is a constant: a function that receives it leaves it unconsumed. `yield from` gives
None where the generator returned a value, `range` accepts a float, and `in` gives whatever `__contains__` returned.
"""

from __future__ import annotations

from typing import Any

from torch._dynamo.symbolic_convert import ExceptionStack, InstructionTranslatorBase
from torch._dynamo.variables.builder import SourcelessBuilder
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.iter import IteratorVariable
from torch._dynamo.variables.lists import RangeVariable
from torch._dynamo.variables.user_defined import UserDefinedClassVariable, UserDefinedObjectVariable

from gearcache.ge_cache.private_torch.probe import Probes, overriding
from gearcache.ge_cache.private_torch.renamed import name_here

probes = Probes()


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
