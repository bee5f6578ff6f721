"""Dynamo hooks by which a trace that asks a dictionary for single keys depends on these keys only.

Dynamo guards all keys and their order where a method calls `.keys()`, the position of a key that `in` finds, and all
keys where it finds none: a model would depend on the names of adapters that it does not use.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from gearcache.ge_cache.capture.exchanged import exchanged, here
from gearcache.ge_cache.private_torch.renamed import name_here

_DICTIONARY_FIELD = "dv_dict"


@contextlib.contextmanager
def single_keys() -> Iterator[None]:
    """Guard single texts in dictionaries and in their `.keys()`; any other use of such a view guards all keys."""
    from torch._dynamo.symbolic_convert import InstructionTranslator
    from torch._dynamo.variables import dicts
    from torch._dynamo.variables.constant import ConstantVariable

    dictionary: Any = dicts.ConstDictVariable
    view: Any = dicts.DictKeysVariable
    contains = name_here(dictionary, "sq_contains")
    call, ask, ask_view = dictionary.call_method, getattr(dictionary, contains), getattr(view, contains)

    @functools.wraps(call)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name == "keys" and not args and not kwargs and type(self) is dictionary and self.source is not None:
            return view(self)
        return call(self, tx, name, args, kwargs)

    @functools.wraps(ask)
    def has_key(self: Any, tx: Any, item: Any) -> Any:
        key = item.realize()  # which guards its value
        if key.source is not None and key.is_python_constant() and type(key.as_python_constant()) is str:
            item = ConstantVariable.create(key.as_python_constant())
        return ask(self, tx, item)

    @functools.wraps(ask_view)
    def view_has_key(self: Any, tx: Any, item: Any) -> Any:
        return getattr(vars(self)[_DICTIONARY_FIELD], contains)(tx, item)

    def get_dictionary(self: Any) -> Any:
        # Whoever reads the view reads this. `lookups` does not see reads within a method of another dictionary.
        table = vars(self)[_DICTIONARY_FIELD]
        if type(table) is dictionary and table.source is not None:
            table.install_dict_keys_match_guard()
            InstructionTranslator.current_tx().output.guard_on_key_order.add(table.source)
        return table

    def set_dictionary(self: Any, value: Any) -> None:
        vars(self)[_DICTIONARY_FIELD] = value

    with exchanged(
        [
            (dictionary, "call_method", here(call_method, call)),
            (dictionary, contains, here(has_key, ask)),
            (view, contains, here(view_has_key, ask_view)),
            (view, _DICTIONARY_FIELD, property(get_dictionary, set_dictionary)),
        ]
    ):
        yield
