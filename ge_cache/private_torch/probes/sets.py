"""Dynamo hooks that report when a trace depends on the order of sets."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Any

from gearcache.ge_cache.private_torch.method_tables import named_methods
from gearcache.ge_cache.private_torch.renamed import name_here

#: Functions of Dynamo's own that iterate over a set for a result that does not depend on the order.
_SET_POLYFILLS = {
    "set_difference",
    "set_difference_update",
    "set_intersection",
    "set_intersection_update",
    "set_isdisjoint",
    "set_symmetric_difference",
    "set_symmetric_difference_update",
    "set_union",
    "set_update",
}
#: Folded builtins whose result depends on the order of a set.
_ORDERED = (str, repr, ascii, format, str.format, sum, operator.mod)


def watched_sets(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (class, name, replacement) of Dynamo's functions for sets."""
    from torch._dynamo.variables import functions
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.builtin import BuiltinVariable, DictBuiltinVariable
    from torch._dynamo.variables.constant import ConstantVariable
    from torch._dynamo.variables.lists import BaseListVariable, DequeVariable, ListVariable
    from torch._dynamo.variables.sets import DictKeySetVariable, FrozensetVariable, OrderedSetVariable, SetVariable

    lists: Any = BaseListVariable
    sets: Any = SetVariable
    frozen: Any = FrozensetVariable
    builtin: Any = BuiltinVariable
    dictionaries: Any = DictBuiltinVariable
    constants: Any = ConstantVariable
    unordered: list[Any] = []
    #: Sets that were iterated over, with their items in that order: unchanged sets keep it.
    orders: dict[int, tuple[Any, list[Any]]] = {}

    def is_unordered(variable: Any) -> bool:
        """Return whether it is a set without an order, or one of a user's class (a variable too since torch 2.15)."""
        is_ordered = isinstance(variable, (DictKeySetVariable, OrderedSetVariable))
        return isinstance(variable, (sets, frozen)) and not is_ordered

    def note_use(self: Any, tx: Any, *, at_once: bool = False) -> None:
        """Note that a set is iterated over; `at_once`: by Python itself, so that its order cannot be chosen here."""
        if not is_unordered(self) or len(self.items) < 2 or any(self is item for item in unordered):
            return
        if tx.f_code.co_name in _SET_POLYFILLS and tx.f_code.co_filename.endswith("polyfills/__init__.py"):
            return
        items = [key.vt.as_python_constant() if key.vt.is_python_constant() else key for key in self.items]
        if self.source is not None and not tx.output.side_effects.is_modified(self):
            facts.ordered(self.source)
            return
        if not at_once and id(self) in orders and orders[id(self)][1] == list(self.items):
            return
        order = facts.order_of_made(items, getattr(self, "gearcache_constant", None), at_once=at_once)
        if order is not None:
            by_item = dict(zip(items, list(self.items.items()), strict=True))
            self.items = dict(by_item[item] for item in order)
        orders[id(self)] = self, list(self.items)

    def using(function: Any) -> Any:
        @functools.wraps(function)
        def method(self: Any, tx: Any, *arguments: Any, **keywords: Any) -> Any:
            note_use(self, tx)
            return function(self, tx, *arguments, **keywords)

        return method

    def without_order(function: Any, *, keywords_matter: bool) -> Any:
        """Wrap a function whose result does not depend on the order of its set."""

        @functools.wraps(function)
        def call(self: Any, tx: Any, *arguments: Any, **keywords: Any) -> Any:
            free = len(arguments) == 1 and not (keywords_matter and keywords.keys() - {"reverse"})
            if not free or not all(map(_is_constant, getattr(arguments[0].realize(), "items", ()))):
                return function(self, tx, *arguments, **keywords)
            unordered.append(arguments[0].realize())
            try:
                return function(self, tx, *arguments, **keywords)
            finally:
                unordered.pop()

        return call

    def popping(call: Any) -> Any:
        @functools.wraps(call)
        def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            if name == "pop":
                note_use(self, tx, at_once=True)
            return call(self, tx, name, args, kwargs)

        return call_method

    def extending(function: Any) -> Any:
        """Wrap a function that calls a method of a list, or extends one: it takes the items of a set at once."""

        @functools.wraps(function)
        def extend(self: Any, tx: Any, *arguments: Any) -> Any:
            *name, args, _ = arguments
            if name in ([], ["extend"]) and len(args) == 1:
                note_use(args[0].realize(), tx)
            return function(self, tx, *arguments)

        return extend

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        """Call a builtin, which may be folded with whole sets and functions as arguments."""
        by_key = self.fn in (max, min) and "key" in kwargs
        if by_key or self.fn in _ORDERED:
            for operand in (*args, *kwargs.values()):
                note_use(operand.realize(), tx, at_once=True)
        result = call(self, tx, args, kwargs)
        if by_key and result.is_python_constant():
            key = kwargs["key"].realize()
            if isinstance(key, functions.BaseUserFunctionVariable):
                facts.ran(key.get_function(), key.source)
        return result

    def call_custom_dict_fromkeys(tx: Any, user_cls: Any, *args: Any, **kwargs: Any) -> Any:
        """`dict.fromkeys`, which iterates over a set in its own way since torch 2.14."""
        for operand in args[:1]:
            note_use(operand.realize(), tx)
        return from_keys(tx, user_cls, *args, **kwargs)

    def create(value: Any, **keywords: Any) -> Any:
        variable = original_create(value, **keywords)
        if type(value) is frozenset and variable.source is None:
            variable.gearcache_constant = value
        return variable

    call, from_keys, original_create = (
        builtin.call_function,
        dictionaries.call_custom_dict_fromkeys,
        constants.create,
    )
    yield from named_methods(sets, ("pop",), popping)
    for kind in (ListVariable, DequeVariable):
        yield from named_methods(kind, ("extend",), extending)
    if (list_extend := getattr(lists, "list_extend", None)) is not None:  # since torch 2.15: `items += some` calls it
        yield lists, "list_extend", extending(list_extend)
    yield builtin, "call_function", functools.wraps(call)(call_function)
    yield dictionaries, "call_custom_dict_fromkeys", functools.wraps(from_keys)(call_custom_dict_fromkeys)
    # Since torch 2.15 both have a base, with these methods: dict views share it, and `note_use` passes them over.
    owners = dict.fromkeys(
        base for owner in (sets, frozen) for base in owner.__mro__ if issubclass(base, VariableTracker)
    )
    for owner in owners:
        for name in ("tp_iter_impl", "unpack_var_sequence", name_here(owner, "repr_impl")):
            if name in vars(owner) and owner is not VariableTracker:
                yield owner, name, using(vars(owner)[name])
    for name, keywords_matter in (
        ("call_sorted", True),
        ("call_min", True),
        ("call_max", True),
        ("call_frozenset", False),
    ):
        yield builtin, name, without_order(vars(builtin)[name], keywords_matter=keywords_matter)
    yield constants, "create", functools.wraps(original_create)(create)


def _is_constant(key: Any) -> bool:
    return bool(getattr(key, "vt", key).is_python_constant())
