"""Report the keys of dictionaries on which a trace depends, and let it depend on no others.

Dynamo guards all keys and their order where a method calls `.keys()`, the position of a key that `in` finds, and all
keys where it finds none: a model would depend on the names of adapters that it does not use. Any other use of a view of
keys guards all keys. Dynamo folds `str(self.table)`, `any(self.table)` or `not self.table` to the current content of
the container, and guards its items at most: an added key, or another order, goes unnoticed.
"""

from __future__ import annotations

import functools
from typing import Any

from torch._dynamo.guards import install_guard
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables import object_protocol
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.dicts import ConstDictVariable, DictKeysVariable, DictViewVariable, DunderDictVariable
from torch._dynamo.variables.lists import BaseListVariable
from torch._dynamo.variables.user_defined import UserDefinedDictVariable, UserDefinedObjectVariable

from gearcache.ge_cache.private_torch.probe import Nesting, Probes, named_methods
from gearcache.ge_cache.private_torch.probes.attributes import may_be_caught
from gearcache.ge_cache.private_torch.renamed import name_here

_FINDERS = ("get", "pop", "setdefault")
_DICTIONARY_FIELD = "dv_dict"
probes = Probes()


class Tests(Nesting):
    """Tests that Dynamo makes now, each inside the one before, in which a constant is not used yet."""


@probes.at(ConstDictVariable, "getitem_const_raise_exception_if_absent")
def looked_up(trace: Any, original: Any, self: Any, tx: Any, arg: Any) -> Any:
    """Guard lookups with a `KeyError`; Dynamo guards found keys, and keys that `in` and `get` lack."""
    if self.source is not None and (arg not in self or may_be_caught(tx)):
        self.install_dict_contains_guard(tx, [arg])
    return original(self, tx, arg)


@probes.at_each(lambda: named_methods(ConstDictVariable, *_FINDERS))
def found(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Guard that the key is there; Dynamo guards the value that such a method found."""
    if name in _FINDERS and args and self.source is not None and args[0] in self:
        self.install_dict_contains_guard(tx, [args[0]])
    return original(self, tx, name, args, kwargs)


# Dynamo guards an object's `__dict__` only by the attributes that are read through it.
@probes.at(DunderDictVariable, "install_dict_keys_match_guard")
def guarded_own_keys(trace: Any, original: Any, self: Any) -> None:
    """Note that all keys matter."""
    if self.source is not None:
        trace.note("own keys", self.source)


@probes.at(DunderDictVariable, "install_dict_contains_guard")
def guarded_own_key(trace: Any, original: Any, self: Any, tx: Any, args: Any) -> None:
    """Note a key that matters."""
    if self.source is None:
        return
    if args[0].is_python_constant():
        trace.note("own key", self.source, args[0].as_python_constant())
    else:
        trace.note("own keys", self.source)


@probes.at(ConstDictVariable, "call_method")
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Make a view of keys without a guard."""
    if name == "keys" and not args and not kwargs and type(self) is ConstDictVariable and self.source is not None:
        return DictKeysVariable(self)
    return original(self, tx, name, args, kwargs)


@probes.at(ConstDictVariable, "sq_contains")
def has_key(trace: Any, original: Any, self: Any, tx: Any, item: Any) -> Any:
    """Look a text up by its value."""
    key = item.realize()  # which guards its value
    if key.source is not None and key.is_python_constant() and type(key.as_python_constant()) is str:
        item = ConstantVariable.create(key.as_python_constant())
    return original(self, tx, item)


@probes.at(DictKeysVariable, "sq_contains")
def view_has_key(trace: Any, original: Any, self: Any, tx: Any, item: Any) -> Any:
    """Look in the dictionary."""
    return getattr(vars(self)[_DICTIONARY_FIELD], name_here(ConstDictVariable, "sq_contains"))(tx, item)


@probes.at_field(DictKeysVariable, _DICTIONARY_FIELD)
def read_dictionary(trace: Any, self: Any) -> None:
    """Guard all keys: whoever reads the view reads this, and another dictionary's method hides it from `lookups`."""
    table = vars(self)[_DICTIONARY_FIELD]
    if type(table) is ConstDictVariable and table.source is not None:
        table.install_dict_keys_match_guard()
        InstructionTranslator.current_tx().output.guard_on_key_order.add(table.source)


@probes.at(VariableTracker, "is_python_constant")
def tested(trace: Any, original: Any, self: Any) -> bool:
    """Mark that the caller only tests for a constant and has not used it yet."""
    with trace.state(Tests):
        return bool(original(self))


@probes.at(ConstDictVariable, "as_python_constant")
def taken_for_constant(trace: Any, original: Any, self: Any) -> Any:
    """Guard all keys of a dictionary that becomes a constant."""
    value = original(self)
    if trace.state(Tests).depth == 0:
        self.install_dict_keys_match_guard()
    return value


@probes.at(ConstDictVariable, "install_dict_contains_guard")
def guarded_key(trace: Any, original: Any, self: Any, tx: Any, args: Any) -> None:
    """Guard a looked-up key.

    Dynamo guards nothing for a key that the method makes and that is not a constant, and hashes its objects anew.
    Where an existing class is not found, Dynamo guards all keys: pytree's table, to which every model of the
    process adds its classes, would distinguish processes by their order of imports.
    """
    key = args[0].realize()
    if self.source is None or tx.output.side_effects.is_modified(self):
        original(self, tx, args)
    elif key.is_python_constant():
        is_class = key.source is not None and isinstance(key.as_python_constant(), type)
        if is_class and key not in self and type(self) is ConstDictVariable:
            absent = functools.partial(type(self).NOT_CONTAINS_GUARD, key=key.as_python_constant())
            install_guard(self.make_guard(absent))
        else:
            original(self, tx, args)
    else:
        original(self, tx, args)
        if key.source is None:
            self.install_dict_keys_match_guard()
            if _holds_object(key):
                trace.refuse("it looks for a key that it makes and that holds an object")


@probes.at(ConstDictVariable, "tp_iter_impl", "repr_impl")
@probes.at(DictViewVariable, "repr_impl")
def gone_through(trace: Any, original: Any, self: Any, *arguments: Any) -> Any:
    """Guard all keys."""
    getattr(self, "dv_dict", self).install_dict_keys_match_guard()
    return original(self, *arguments)


@probes.at(object_protocol, "generic_bool")
def asked_truth(trace: Any, original: Any, tx: Any, obj: Any) -> Any:
    """Note whether a dictionary is empty."""
    obj = obj.realize()
    if obj.source is None or not _is_dictionary(obj):
        return original(tx, obj)
    if not tx.output.side_effects.is_modified(obj):
        trace.note("emptiness", obj.source)
    with trace.state(Tests):
        return original(tx, obj)


def _is_dictionary(variable: Any) -> bool:
    """Return whether a variable is a dictionary that is true when it has keys."""
    if isinstance(variable, UserDefinedDictVariable):
        cls: Any = type(variable.value)
        return cls.__len__ is dict.__len__ and not hasattr(cls, "__bool__")
    return isinstance(variable, ConstDictVariable) and not isinstance(variable, DunderDictVariable)


def _holds_object(variable: Any) -> bool:
    """Whether a key of a dictionary holds, at any depth, an object of a user's class."""
    variable = variable.realize()
    if isinstance(variable, BaseListVariable):
        return any(map(_holds_object, variable.items))
    return isinstance(variable, UserDefinedObjectVariable) and not variable.is_python_constant()
