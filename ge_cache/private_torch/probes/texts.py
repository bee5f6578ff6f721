"""Report when a trace uses texts of objects, and texts of addresses."""

from __future__ import annotations

import re
from typing import Any

from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.utils import specialize_symnode
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

from gearcache.ge_cache.private_torch.corrections.made_objects import holds_made_object, is_made
from gearcache.ge_cache.private_torch.probe import Probes, overriding

_ADDRESS = re.compile(r" at 0x[0-9a-f]{6,}")
_OF_ADDRESS = "it makes a text of an object's address, which differs between processes"
_OF_MADE = "it makes a text of an object that it makes, where the trace does not know what is in it"
specialize: Any = specialize_symnode
probes = Probes()


@probes.at(InstructionTranslatorBase, "_format_value")
def formatted(trace: Any, original: Any, self: Any, fmt_spec: Any, flags: int) -> None:
    """Evaluate `f"{self.kind}"`, which Dynamo leaves as it is and then does not find as a key."""
    value = self.stack[-1].realize()
    if isinstance(value, SymNodeVariable):  # Dynamo forgets `05d`, and gives away the number for `f"{n}"` alone
        value = self.stack[-1] = specialize(value)
    if isinstance(value, UserDefinedObjectVariable) and flags & 3 == 0:
        formatter: Any = value.value_type.__format__
        if formatter is object.__format__ and fmt_spec.as_python_constant() == "":
            flags |= 1  # this is its effect: `str(value)`
        elif is_made(value):
            trace.refuse(_OF_MADE)
    elif holds_made_object(value) and not is_made(value):
        trace.refuse(_OF_MADE)
    original(self, fmt_spec, flags)


@probes.at(ConstantVariable, "call_method")
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Refuse `"{}".format(...)` of an object that the trace makes."""
    if name == "format" and any(map(holds_made_object, (*args, *kwargs.values()))):
        trace.refuse(_OF_MADE)
    return original(self, tx, name, args, kwargs)


@probes.at(BuiltinVariable, "call_method")
def called_method_of_class(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Answer `object.__repr__(thing)`, for which Dynamo may ask the class of the thing."""
    if self.fn is object and name == "__repr__":
        trace.refuse(_OF_ADDRESS)
    result = original(self, tx, name, args, kwargs)
    _check_address(trace, result, *args)
    return result


@probes.at(BuiltinVariable, "call_format")
def called_format(trace: Any, original: Any, self: Any, tx: Any, text: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Refuse `format(n, "05d")`, which Dynamo takes for `"...".format(...)`."""
    if self.fn is format:
        trace.refuse('it calls `format()`: use an f-string, such as `f"{n:05d}"`', at_once=True)
    return original(self, tx, text, *args, **kwargs)


@probes.at(BuiltinVariable, "call_str")
def called_str(trace: Any, original: Any, self: Any, tx: Any, arg: Any) -> Any:
    """Answer `str(n)` by the value, and `str(thing)` by the `__repr__` of a class that has no `__str__`."""
    if isinstance(arg, SymNodeVariable):  # Dynamo does not know `str` of it
        return ConstantVariable.create(str(specialize(arg).as_python_constant()))
    if isinstance(arg, UserDefinedObjectVariable):
        cls: Any = arg.value_type
        # Dynamo calls the object itself, without the trace's knowledge of it.
        if cls.__str__ is object.__str__ and cls.__repr__ is not object.__repr__:
            return BuiltinVariable(repr).call_function(tx, [arg], {})
    return called_repr(trace, original, self, tx, arg)


@probes.at(BuiltinVariable, "call_repr")
def called_repr(trace: Any, original: Any, self: Any, tx: Any, arg: Any) -> Any:
    """Refuse texts that another process would not make."""
    if holds_made_object(arg) and not is_made(arg):
        trace.refuse(_OF_MADE)
    result = original(self, tx, arg)
    _check_address(trace, result, arg)
    return result


@probes.at_each(lambda: overriding(VariableTracker, "repr_impl"))
def described(trace: Any, original: Any, self: Any, tx: Any) -> Any:
    """Answer `thing.__repr__()`, which calls no builtin."""
    result = original(self, tx)
    _check_address(trace, result, self)
    return result


def _check_address(trace: Any, result: Any, *described: Any) -> None:
    """Refuse a text with an address, unless it was in a text from before."""
    text = result.as_python_constant() if result is not None and result.is_python_constant() else None
    if type(text) is str and _ADDRESS.search(text) and not all(one.is_python_constant() for one in described):
        trace.refuse(_OF_ADDRESS)
