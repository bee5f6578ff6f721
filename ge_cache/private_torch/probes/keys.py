"""Report keys that a trace looks up, in a dictionary or an object's `__dict__`, and let it depend on these keys only.

Dynamo guards all keys and their order where a method calls `.keys()`, the position of a key that `in` finds, and all
keys where it finds none: a model would depend on the names of adapters that it does not use. Any other use of a view of
keys guards all keys.
"""

from __future__ import annotations

from typing import Any

from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.dicts import ConstDictVariable, DictKeysVariable, DunderDictVariable

from gearcache.ge_cache.private_torch.probe import Probes, named_methods
from gearcache.ge_cache.private_torch.probes.attributes import may_be_caught
from gearcache.ge_cache.private_torch.renamed import name_here

_FINDERS = ("get", "pop", "setdefault")
_DICTIONARY_FIELD = "dv_dict"
probes = Probes()


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
