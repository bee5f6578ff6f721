"""Report when a trace uses identities of objects, or results of calls that Dynamo folds; refuse hashes."""

from __future__ import annotations

import copy
import inspect
import sys
from typing import Any

from torch._dynamo.source import ConstDictKeySource
from torch._dynamo.variables import base, object_protocol
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.constant import ConstantVariable, FakeIdVariable
from torch._dynamo.variables.functions import PolyfilledFunctionVariable
from torch._dynamo.variables.hashable import HashableTracker
from torch._dynamo.variables.lazy import LazyVariableTracker
from torch._dynamo.variables.lists import BaseListVariable
from torch._dynamo.variables.misc import StringFormatVariable

from gearcache.ge_cache.private_torch.corrections.comparisons import objects_in
from gearcache.ge_cache.private_torch.probe import Nesting, Probes
from gearcache.ge_cache.private_torch.probes.inlined import CALLED

probes = Probes()


class _Keys(Nesting):
    """Keys of dictionaries that Dynamo makes now, each inside the one before."""


@probes.at(BuiltinVariable, "call_id")
def asked_id(trace: Any, original: Any, self: Any, tx: Any, *arguments: Any) -> Any:
    """Refuse `id()`, except where it is only compared, or tells `copy.deepcopy` what it has copied already."""
    number = _number_of(trace, tx, *arguments)
    if number is not None:
        return FakeIdVariable(number)  # the trace may compare and look it up, but not keep it
    result = original(self, tx, *arguments)
    if not isinstance(result, FakeIdVariable) and tx.f_globals is not vars(copy):
        trace.refuse("it calls `id()`, whose result differs between processes")
    return result


def _number_of(trace: Any, tx: Any, *arguments: Any) -> Any:
    """Note an object whose `id()` is asked for, and return that number; None if another process cannot find it."""
    if len(arguments) != 1 or isinstance(arguments[0], LazyVariableTracker):
        return None
    number = arguments[0].get_id(tx)
    if number is None or arguments[0].source is None:
        return None
    trace.note("hashed", arguments[0].source)
    return number


@probes.at(ConstantVariable, "call_method")
def asked_hash_of_constant(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Refuse `text.__hash__()`."""
    if name == "__hash__":
        _refuse_hash(trace)
    return original(self, tx, name, args, kwargs)


@probes.at(object_protocol, "generic_hash")
def asked_hash(trace: Any, original: Any, tx: Any, obj: Any) -> Any:
    """Refuse `hash(thing)`, except where it is only compared."""
    result = original(tx, obj)
    if not isinstance(result, FakeIdVariable):
        _refuse_hash(trace)
    return result


@probes.at_each(lambda: [(vars(slot), "wrapper") for slot in getattr(base, "_SLOTDEFS", ()) if slot.name == "__hash__"])
def called_hash(trace: Any, original: Any, self: Any, *arguments: Any) -> Any:
    """Refuse `thing.__hash__()`, which since torch 2.15 is a slot."""
    result = original(self, *arguments)
    if not isinstance(result, FakeIdVariable):
        _refuse_hash(trace)
    return result


def _refuse_hash(trace: Any) -> None:
    """Refuse a hash that is not that of a key, whose hash does not matter."""
    if trace.state(_Keys).depth == 0:
        trace.refuse("it calls `hash()`, whose result may differ between processes: use the value itself as a key")


@probes.at(HashableTracker, "__init__")
def made_key(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Make a key of a dictionary: its hash does not matter; that of an object is computed, and compared."""
    if _holds_open_text(arguments[0]):
        cause = "it looks for a text of a tensor among keys: what it says is known when the graph runs"
        trace.refuse(cause, at_once=True)  # before Dynamo finds that the key is missing
    with trace.state(_Keys):
        original(self, *arguments, **keywords)
    if any(objects_in(self.vt)):
        trace.note("name", "__eq__")
        trace.note("name", "__hash__")


@probes.at(PolyfilledFunctionVariable, "call_function")
def folded(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Note a call that Dynamo replaces by its result."""
    bounds_a_loop = self.fn is sys.getrecursionlimit and tx.f_globals.get("__name__") == inspect.__name__
    if self.can_constant_fold_through() and not args and not kwargs and not bounds_a_loop:
        # `inspect.unwrap` reads the recursion limit, which Inductor raises when it compiles.
        trace.note("call", self.fn, self.source, CALLED)
    return original(self, tx, args, kwargs)


def _holds_open_text(variable: Any) -> bool:
    """Return whether a variable is, or is a tuple with, a text that is made when the graph runs."""
    if type(variable) is LazyVariableTracker and type(variable.source) is ConstDictKeySource:
        return False  # a key from before the call: `isinstance` would make evidence of every key of a table
    if isinstance(variable, BaseListVariable):
        return any(map(_holds_open_text, variable.items))
    return isinstance(variable, StringFormatVariable)
