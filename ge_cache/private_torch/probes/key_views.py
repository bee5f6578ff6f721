"""Let a trace that asks a dictionary for single keys depend on these keys only.

Dynamo guards all keys and their order where a method calls `.keys()`, the position of a key that `in` finds, and all
keys where it finds none: a model would depend on the names of adapters that it does not use. Any other use of such a
view guards all keys.
"""

from __future__ import annotations

from typing import Any

from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.dicts import ConstDictVariable, DictKeysVariable

from gearcache.ge_cache.private_torch.probe import Probes
from gearcache.ge_cache.private_torch.renamed import name_here

_DICTIONARY_FIELD = "dv_dict"
probes = Probes()


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
