"""Report when a trace uses texts of objects, their hashes or their addresses."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

from msgspec import Struct
from torch._dynamo.source import ConstDictKeySource
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.utils import specialize_symnode
from torch._dynamo.variables import base, object_protocol
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.constant import ConstantVariable, FakeIdVariable
from torch._dynamo.variables.functions import PolyfilledFunctionVariable
from torch._dynamo.variables.hashable import HashableTracker
from torch._dynamo.variables.lazy import LazyVariableTracker
from torch._dynamo.variables.lists import BaseListVariable
from torch._dynamo.variables.misc import StringFormatVariable
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

from gearcache.ge_cache.private_torch.corrections.made_objects import holds_made_object, is_made
from gearcache.ge_cache.private_torch.probe import Probes, overriding

_ADDRESS = re.compile(r" at 0x[0-9a-f]{6,}")
_OF_ADDRESS = "it makes a text of an object's address, which differs between processes"
_OF_MADE = "it makes a text of an object that it makes, where the trace does not know what is in it"
specialize: Any = specialize_symnode
probes = Probes()


class _Keys(Struct):
    """Keys of dictionaries that Dynamo makes now, each inside the one before."""

    depth: int = 0


@probes.at(BuiltinVariable, "call_id")
def asked_id(trace: Any, original: Any, self: Any, tx: Any, *arguments: Any) -> Any:
    """Refuse `id()`, except where it is only compared."""
    result = original(self, tx, *arguments)
    if not isinstance(result, FakeIdVariable):
        trace.facts.refuse("it calls `id()`, whose result differs between processes")
    return result


@probes.at(ConstantVariable, "call_method")
def asked_hash_of_constant(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Note `text.__hash__()`."""
    if name == "__hash__":
        trace.facts.hashed(self.value)
    return original(self, tx, name, args, kwargs)


@probes.at(object_protocol, "generic_hash")
def asked_hash(trace: Any, original: Any, tx: Any, obj: Any) -> Any:
    """Note `hash(thing)`."""
    result = original(tx, obj)
    _note_hash(trace, obj, result)
    return result


@probes.at_each(lambda: [(vars(slot), "wrapper") for slot in getattr(base, "_SLOTDEFS", ()) if slot.name == "__hash__"])
def called_hash(trace: Any, original: Any, self: Any, *arguments: Any) -> Any:
    """Note `thing.__hash__()`, which since torch 2.15 is a slot."""
    result = original(self, *arguments)
    _note_hash(trace, self, result)
    return result


def _note_hash(trace: Any, obj: Any, result: Any) -> None:
    if trace.state(_Keys).depth == 0 and not isinstance(result, FakeIdVariable):
        constant = obj.is_python_constant()
        trace.facts.hashed(obj.as_python_constant() if constant else obj.get_real_python_backed_value())


@probes.at(HashableTracker, "__init__")
def made_key(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Make a key of a dictionary: its hash does not matter."""
    if _holds_open_text(arguments[0]):
        trace.facts.refuse("it looks for a text of a tensor among keys: what it says is known when the graph runs")
        trace.facts.raise_refusals()  # before Dynamo finds that the key is missing
    keys = trace.state(_Keys)
    keys.depth += 1
    try:
        original(self, *arguments, **keywords)
    finally:
        keys.depth -= 1


@probes.at(PolyfilledFunctionVariable, "call_function")
def folded(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Note a call that Dynamo replaces by its result."""
    bounds_a_loop = self.fn is sys.getrecursionlimit and tx.f_globals.get("__name__") == inspect.__name__
    if self.can_constant_fold_through() and not args and not kwargs and not bounds_a_loop:
        # `inspect.unwrap` reads the recursion limit, which Inductor raises when it compiles.
        trace.facts.folded(self.fn, self.source)
    return original(self, tx, args, kwargs)


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
            trace.facts.refuse(_OF_MADE)
    elif holds_made_object(value) and not is_made(value):
        trace.facts.refuse(_OF_MADE)
    original(self, fmt_spec, flags)


@probes.at(ConstantVariable, "call_method")
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Refuse `"{}".format(...)` of an object that the trace makes."""
    if name == "format" and any(map(holds_made_object, (*args, *kwargs.values()))):
        trace.facts.refuse(_OF_MADE)
    return original(self, tx, name, args, kwargs)


@probes.at(BuiltinVariable, "call_method")
def called_method_of_class(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Answer `object.__repr__(thing)`, for which Dynamo may ask the class of the thing."""
    if self.fn is object and name == "__repr__":
        trace.facts.refuse(_OF_ADDRESS)
    result = original(self, tx, name, args, kwargs)
    _check_address(trace, result, *args)
    return result


@probes.at(BuiltinVariable, "call_format")
def called_format(trace: Any, original: Any, self: Any, tx: Any, text: Any, *args: Any, **kwargs: Any) -> Any:
    """Answer `format(n, "05d")`, which Dynamo takes for `"...".format(...)`."""
    if self.fn is not format:
        return original(self, tx, text, *args, **kwargs)
    value = text.realize()
    value = specialize(value) if isinstance(value, SymNodeVariable) else value
    spec = args[0].as_python_constant() if args else ""
    form = ConstantVariable.create("{:" + spec + "}")
    return BuiltinVariable(str.format).call_function(tx, [form, value], {})


@probes.at(BuiltinVariable, "call_str")
def called_str(trace: Any, original: Any, self: Any, tx: Any, arg: Any) -> Any:
    """Answer `str(thing)` by the `__repr__` of a class that has no `__str__`."""
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
        trace.facts.refuse(_OF_MADE)
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
        trace.facts.refuse(_OF_ADDRESS)


def _holds_open_text(variable: Any) -> bool:
    """Return whether a variable is, or is a tuple with, a text that is made when the graph runs."""
    if type(variable) is LazyVariableTracker and type(variable.source) is ConstDictKeySource:
        return False  # a key from before the call: `isinstance` would make evidence of every key of a table
    if isinstance(variable, BaseListVariable):
        return any(map(_holds_open_text, variable.items))
    return isinstance(variable, StringFormatVariable)
