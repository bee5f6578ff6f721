"""Dynamo hooks that report when a trace uses texts of objects, their hashes or their addresses."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

from gearcache.ge_cache.private_torch.corrections.made_objects import holds_made_object, is_made
from gearcache.ge_cache.private_torch.probes.attributes import with_subclasses
from gearcache.ge_cache.private_torch.renamed import name_here

_ADDRESS = re.compile(r" at 0x[0-9a-f]{6,}")
_OF_ADDRESS = "it makes a text of an object's address, which differs between processes"


def watched_texts(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of functions that make texts of objects.

    Dynamo leaves `f"{self.kind}"` unevaluated, and then finds nothing under such a key.
    """
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase
    from torch._dynamo.utils import specialize_symnode
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._dynamo.variables.constant import ConstantVariable
    from torch._dynamo.variables.tensor import SymNodeVariable
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    specialize: Any = specialize_symnode
    translator: Any = InstructionTranslatorBase
    builtin: Any = BuiltinVariable
    constants: Any = ConstantVariable
    format_value, format_text = translator._format_value, constants.call_method
    call_of_class, format_of = builtin.call_method, builtin.call_format

    @functools.wraps(format_value)
    def _format_value(self: Any, fmt_spec: Any, flags: int) -> None:
        value = self.stack[-1].realize()
        if isinstance(value, SymNodeVariable):  # Dynamo forgets `05d`, and gives away the number for `f"{n}"` alone
            value = self.stack[-1] = specialize(value)
        if isinstance(value, UserDefinedObjectVariable) and flags & 3 == 0:
            formatter: Any = value.value_type.__format__
            if formatter is object.__format__ and fmt_spec.as_python_constant() == "":
                flags |= 1  # this is its effect: `str(value)`
            elif is_made(value):
                refuse_text()
        elif holds_made_object(value) and not is_made(value):
            refuse_text()
        format_value(self, fmt_spec, flags)

    @functools.wraps(format_of)
    def call_format(self: Any, tx: Any, text: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer `format(n, "05d")`, which Dynamo takes for `"...".format(...)`."""
        if self.fn is not format:
            return format_of(self, tx, text, *args, **kwargs)
        value = text.realize()
        value = specialize(value) if isinstance(value, SymNodeVariable) else value
        spec = args[0].as_python_constant() if args else ""
        return builtin(str.format).call_function(tx, [constants.create("{:" + spec + "}"), value], {})

    def refuse_text() -> None:
        facts.refuse("it makes a text of an object that it makes, where the trace does not know what is in it")

    @functools.wraps(format_text)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name == "format" and any(map(holds_made_object, (*args, *kwargs.values()))):
            refuse_text()
        return format_text(self, tx, name, args, kwargs)

    @functools.wraps(call_of_class)
    def call_method_of_class(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Answer `object.__repr__(thing)`, for which Dynamo may ask the class of the thing."""
        if self.fn is object and name == "__repr__":
            facts.refuse(_OF_ADDRESS)
        result = call_of_class(self, tx, name, args, kwargs)
        check_address(result, *args)
        return result

    def check_address(result: Any, *described: Any) -> None:
        """Refuse a text with an address, unless it was in a text from before."""
        text = result.as_python_constant() if result is not None and result.is_python_constant() else None
        if type(text) is str and _ADDRESS.search(text) and not all(one.is_python_constant() for one in described):
            facts.refuse(_OF_ADDRESS)

    def texts(function: Any) -> Any:
        @functools.wraps(function)
        def text(self: Any, tx: Any, arg: Any) -> Any:
            if isinstance(arg, UserDefinedObjectVariable) and is_str:
                cls: Any = arg.value_type
                # Dynamo calls the object itself, without the trace's knowledge of it.
                if cls.__str__ is object.__str__ and cls.__repr__ is not object.__repr__:
                    return builtin(repr).call_function(tx, [arg], {})
            if holds_made_object(arg) and not is_made(arg):
                refuse_text()
            result = function(self, tx, arg)
            check_address(result, arg)
            return result

        is_str = function.__name__ == "call_str"
        return text

    def describing(function: Any) -> Any:
        @functools.wraps(function)
        def repr_impl(self: Any, tx: Any) -> Any:
            """Answer `thing.__repr__()`, which calls no builtin."""
            result = function(self, tx)
            check_address(result, self)
            return result

        return repr_impl

    yield translator, "_format_value", _format_value
    yield constants, "call_method", call_method
    yield builtin, "call_method", call_method_of_class
    yield builtin, "call_format", call_format
    for name in ("call_str", "call_repr"):
        yield builtin, name, texts(vars(builtin)[name])
    name = name_here(VariableTracker, "repr_impl")
    for kind in with_subclasses(VariableTracker):
        if name in vars(kind):
            yield kind, name, describing(vars(kind)[name])


def _holds_open_text(variable: Any) -> bool:
    """Return whether a variable is, or is a tuple with, a text that is made when the graph runs."""
    from torch._dynamo.source import ConstDictKeySource
    from torch._dynamo.variables.lazy import LazyVariableTracker
    from torch._dynamo.variables.lists import BaseListVariable
    from torch._dynamo.variables.misc import StringFormatVariable

    if type(variable) is LazyVariableTracker and type(variable.source) is ConstDictKeySource:
        return False  # a key from before the call: `isinstance` would make evidence of every key of a table
    if isinstance(variable, BaseListVariable):
        return any(map(_holds_open_text, variable.items))
    return isinstance(variable, StringFormatVariable)


def watched_addresses(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of functions that use an identity, a hash, or the result of a folded call."""
    from torch._dynamo.variables import base, object_protocol
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._dynamo.variables.constant import ConstantVariable, FakeIdVariable
    from torch._dynamo.variables.functions import PolyfilledFunctionVariable
    from torch._dynamo.variables.hashable import HashableTracker

    constants: Any = ConstantVariable
    key: Any = HashableTracker
    builtin: Any = BuiltinVariable
    protocol: Any = object_protocol
    polyfilled: Any = PolyfilledFunctionVariable
    id_of, hash_of, call, init_key = builtin.call_id, protocol.generic_hash, polyfilled.call_function, key.__init__
    constant_call = constants.call_method
    keys = 0

    @functools.wraps(id_of)
    def call_id(self: Any, tx: Any, *arguments: Any) -> Any:
        result = id_of(self, tx, *arguments)
        if not isinstance(result, FakeIdVariable):
            facts.refuse("it calls `id()`, whose result differs between processes")
        return result

    @functools.wraps(hash_of)
    def generic_hash(tx: Any, obj: Any) -> Any:
        result = hash_of(tx, obj)
        note_hash(obj, result)
        return result

    def note_hash(obj: Any, result: Any) -> None:
        if keys == 0 and not isinstance(result, FakeIdVariable):
            constant = obj.is_python_constant()
            facts.hashed(obj.as_python_constant() if constant else obj.get_real_python_backed_value())

    def hashing(function: Any) -> Any:
        @functools.wraps(function)
        def call_slot(self: Any, *arguments: Any) -> Any:
            """Answer `thing.__hash__()`, which since torch 2.15 is a slot."""
            result = function(self, *arguments)
            note_hash(self, result)
            return result

        return call_slot

    @functools.wraps(init_key)
    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        """Make a key of a dictionary: its hash does not matter."""
        nonlocal keys
        if _holds_open_text(arguments[0]):
            facts.refuse("it looks for a text of a tensor among keys: what it says is known when the graph runs")
            facts.raise_refusals()  # before Dynamo finds that the key is missing
        keys += 1
        try:
            init_key(self, *arguments, **keywords)
        finally:
            keys -= 1

    @functools.wraps(call)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        bounds_a_loop = self.fn is sys.getrecursionlimit and tx.f_globals.get("__name__") == inspect.__name__
        if self.can_constant_fold_through() and not args and not kwargs and not bounds_a_loop:
            # `inspect.unwrap` reads the recursion limit, which Inductor raises when it compiles.
            facts.folded(self.fn, self.source)
        return call(self, tx, args, kwargs)

    @functools.wraps(constant_call)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name == "__hash__":
            facts.hashed(self.value)
        return constant_call(self, tx, name, args, kwargs)

    yield builtin, "call_id", call_id
    yield constants, "call_method", call_method
    yield protocol, "generic_hash", generic_hash
    for slot in getattr(base, "_SLOTDEFS", ()):
        if slot.name == "__hash__":
            yield vars(slot), "wrapper", hashing(slot.wrapper)
    yield key, "__init__", init
    yield polyfilled, "call_function", call_function
