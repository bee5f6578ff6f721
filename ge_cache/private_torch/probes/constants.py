"""Dynamo hooks that report when a trace treats a whole container as a constant.

Dynamo folds `str(self.table)`, `any(self.table)` or `not self.table` to the current content of the container, and
guards its items at most: an added key, or another order, goes unnoticed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from gearcache.ge_cache.private_torch.renamed import name_here


def watched_constants(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of functions that make constants of containers, or iterate over them."""
    from torch._dynamo.guards import install_guard
    from torch._dynamo.variables import dicts, object_protocol
    from torch._dynamo.variables.base import VariableTracker

    variable: Any = VariableTracker
    dictionary: Any = dicts.ConstDictVariable
    is_constant, constant = variable.is_python_constant, dictionary.as_python_constant
    protocol: Any = object_protocol
    truth_name = name_here(protocol, "generic_bool")
    truth, ask_for_key = getattr(protocol, truth_name), dictionary.install_dict_contains_guard
    test_depth = 0

    @functools.wraps(is_constant)
    def is_python_constant(self: Any) -> bool:
        """Mark that the caller only tests for a constant and has not used it yet."""
        nonlocal test_depth
        test_depth += 1
        try:
            return bool(is_constant(self))
        finally:
            test_depth -= 1

    @functools.wraps(constant)
    def as_python_constant(self: Any) -> Any:
        value = constant(self)
        if test_depth == 0:
            self.install_dict_keys_match_guard()
        return value

    @functools.wraps(truth)
    def generic_bool(tx: Any, obj: Any) -> Any:
        nonlocal test_depth
        obj = obj.realize()
        if obj.source is None or not _is_dictionary(obj):
            return truth(tx, obj)
        if not tx.output.side_effects.is_modified(obj):
            facts.emptiness(obj.source)
        test_depth += 1
        try:
            return truth(tx, obj)
        finally:
            test_depth -= 1

    @functools.wraps(ask_for_key)
    def install_dict_contains_guard(self: Any, tx: Any, args: Any) -> None:
        """Guard a looked-up key.

        Dynamo guards nothing for a key that the method makes and that is not a constant, and hashes its objects anew.
        Where an existing class is not found, Dynamo guards all keys: pytree's table, to which every model of the
        process adds its classes, would distinguish processes by their order of imports.
        """
        key = args[0].realize()
        if self.source is None or tx.output.side_effects.is_modified(self):
            ask_for_key(self, tx, args)
        elif key.is_python_constant():
            is_class = key.source is not None and isinstance(key.as_python_constant(), type)
            if is_class and key not in self and type(self) is dicts.ConstDictVariable:
                absent = functools.partial(type(self).NOT_CONTAINS_GUARD, key=key.as_python_constant())
                install_guard(self.make_guard(absent))
            else:
                ask_for_key(self, tx, args)
        else:
            ask_for_key(self, tx, args)
            if key.source is None:
                self.install_dict_keys_match_guard()
                if _holds_object(key):
                    facts.refuse("it looks for a key that it makes and that holds an object")

    def going_through(function: Any) -> Any:
        @functools.wraps(function)
        def method(self: Any, *arguments: Any) -> Any:
            getattr(self, "dv_dict", self).install_dict_keys_match_guard()
            return function(self, *arguments)

        return method

    yield variable, "is_python_constant", is_python_constant
    yield dictionary, "as_python_constant", as_python_constant
    yield dictionary, "install_dict_contains_guard", install_dict_contains_guard
    view: Any = dicts.DictViewVariable
    representation = name_here(variable, "repr_impl")
    for cls, name in ((dictionary, "tp_iter_impl"), (dictionary, representation), (view, representation)):
        yield cls, name, going_through(vars(cls)[name])
    yield protocol, truth_name, generic_bool


def _is_dictionary(variable: Any) -> bool:
    """Return whether a variable is a dictionary that is true when it has keys."""
    from torch._dynamo.variables.dicts import ConstDictVariable, DunderDictVariable
    from torch._dynamo.variables.user_defined import UserDefinedDictVariable

    if isinstance(variable, UserDefinedDictVariable):
        cls: Any = type(variable.value)
        return cls.__len__ is dict.__len__ and not hasattr(cls, "__bool__")
    return isinstance(variable, ConstDictVariable) and not isinstance(variable, DunderDictVariable)


def _holds_object(variable: Any) -> bool:
    """Whether a key of a dictionary holds, at any depth, an object of a user's class."""
    from torch._dynamo.variables.lists import BaseListVariable
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    variable = variable.realize()
    if isinstance(variable, BaseListVariable):
        return any(map(_holds_object, variable.items))
    return isinstance(variable, UserDefinedObjectVariable) and not variable.is_python_constant()
