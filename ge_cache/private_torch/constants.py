"""Private names of torch with which a trace tells that it took a whole container for a constant.

Dynamo folds `str(self.table)`, `any(self.table)` or `not self.table` to what the container holds now, and guards its
items at most: a key more, or another order, is not seen.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any


def watched_constants(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of what makes constants of containers, or goes through them."""
    from torch._dynamo.variables import dicts, object_protocol
    from torch._dynamo.variables.base import VariableTracker

    variable: Any = VariableTracker
    dictionary: Any = dicts.ConstDictVariable
    is_constant, constant = variable.is_python_constant, dictionary.as_python_constant
    protocol: Any = object_protocol
    truth = protocol.generic_bool
    asked = 0

    @functools.wraps(is_constant)
    def is_python_constant(self: Any) -> bool:
        """Whoever asks this has not taken the constant yet."""
        nonlocal asked
        asked += 1
        try:
            return bool(is_constant(self))
        finally:
            asked -= 1

    @functools.wraps(constant)
    def as_python_constant(self: Any) -> Any:
        found = constant(self)
        if asked == 0:
            self.install_dict_keys_match_guard()
        return found

    @functools.wraps(truth)
    def generic_bool(tx: Any, obj: Any) -> Any:
        nonlocal asked
        obj = obj.realize()
        if obj.source is None or not _is_dictionary(obj):
            return truth(tx, obj)
        if not tx.output.side_effects.is_modified(obj):
            facts.emptiness(obj.source)
        asked += 1
        try:
            return truth(tx, obj)
        finally:
            asked -= 1

    def going_through(function: Any) -> Any:
        @functools.wraps(function)
        def method(self: Any, *arguments: Any) -> Any:
            getattr(self, "dv_dict", self).install_dict_keys_match_guard()
            return function(self, *arguments)

        return method

    yield variable, "is_python_constant", is_python_constant
    yield dictionary, "as_python_constant", as_python_constant
    for cls, name in ((dictionary, "tp_iter_impl"), (dictionary, "repr_impl"), (dicts.DictViewVariable, "repr_impl")):
        yield cls, name, going_through(vars(cls)[name])
    for module in [module for name, module in sys.modules.items() if name.startswith("torch._dynamo")]:
        if vars(module).get("generic_bool") is truth:
            yield module, "generic_bool", generic_bool


def _is_dictionary(variable: Any) -> bool:
    """Whether a variable is a dictionary that is true when it has keys."""
    from torch._dynamo.variables.dicts import ConstDictVariable, DunderDictVariable
    from torch._dynamo.variables.user_defined import UserDefinedDictVariable

    if isinstance(variable, UserDefinedDictVariable):
        cls: Any = type(variable.value)
        return cls.__len__ is dict.__len__ and not hasattr(cls, "__bool__")
    return isinstance(variable, ConstDictVariable) and not isinstance(variable, DunderDictVariable)
