"""Report when a trace treats a whole container as a constant.

Dynamo folds `str(self.table)`, `any(self.table)` or `not self.table` to the current content of the container, and
guards its items at most: an added key, or another order, goes unnoticed.
"""

from __future__ import annotations

import functools
from typing import Any

from torch._dynamo.guards import install_guard
from torch._dynamo.variables import object_protocol
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.dicts import ConstDictVariable, DictViewVariable, DunderDictVariable
from torch._dynamo.variables.lists import BaseListVariable
from torch._dynamo.variables.user_defined import UserDefinedDictVariable, UserDefinedObjectVariable

from gearcache.ge_cache.private_torch.probe import Nesting, Probes

probes = Probes()


class Tests(Nesting):
    """Tests that Dynamo makes now, each inside the one before, in which a constant is not used yet."""


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
