"""Dynamo hooks for objects that the method makes.

For an object that a method makes, Dynamo has an example whose `__init__` has not run, and records writes separately.
Code that reads the example itself gets a wrong answer: its text, its `__dict__` as a value. Nor does the trace learn
when the last reference to an object goes, so neither `__del__` nor a weak reference can be right.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any


def watched_made_objects(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of functions that read objects' `__dict__` and make references to them."""
    from torch._dynamo import side_effects
    from torch._dynamo.variables.dicts import ConstDictVariable, DunderDictVariable, SideEffectsProxyDict
    from torch._dynamo.variables.misc import DeletedVariable, WeakRefVariable

    effects: Any = side_effects
    weak: Any = WeakRefVariable
    own_dict: Any = DunderDictVariable
    proxy: Any = SideEffectsProxyDict
    dictionary: Any = ConstDictVariable
    tracked: Any = side_effects.SideEffects
    init_weak, contains, store = weak.__init__, proxy.__contains__, tracked.store_attr
    recreated: set[tuple[Any, str]] = set()

    @functools.wraps(init_weak)
    def init_reference(self: Any, referent: Any, *arguments: Any, **keywords: Any) -> None:
        init_weak(self, referent, *arguments, **keywords)
        if is_made(referent):
            facts.refuse("it makes a weak reference to an object that it made itself")

    @functools.wraps(dictionary.reconstruct)
    def reconstruct(self: Any, codegen: Any) -> None:
        if self.source is None and isinstance(self, DunderDictVariable):
            facts.refuse("it gives away the `__dict__` of an object that it makes; give away a copy: `dict(vars(o))`")
        dictionary.reconstruct(self, codegen)

    @functools.wraps(store)
    def store_attr(self: Any, item: Any, name: str, *arguments: Any, **keywords: Any) -> None:
        mutations = self.store_attr_mutations.get(item, {})
        if isinstance(mutations.get(name), DeletedVariable):
            del mutations[name]  # a recreated attribute is the last one in the `__dict__`
            recreated.add((item, name))
        store(self, item, name, *arguments, **keywords)

    @functools.wraps(contains)
    def has_key(self: Any, key: Any) -> bool:
        mutations = self.side_effects.store_attr_mutations.get(self.item, {})
        if isinstance(mutations.get(self._maybe_unwrap_key(key)), DeletedVariable):
            return False
        return bool(contains(self, key))

    def keys(self: Any) -> Iterator[Any]:
        """Yield the keys in Python's order: new ones last."""
        from torch._dynamo.variables.constant import ConstantVariable
        from torch._dynamo.variables.hashable import HashableTracker

        mutations = self.side_effects.store_attr_mutations.get(self.item, {})
        if any((self.item, name) in recreated for name in self.item_dict):
            facts.refuse("it lists the attributes of an object of which it has deleted one and made it anew")
        for name in self.item_dict:
            if not isinstance(mutations.get(name), DeletedVariable):
                yield HashableTracker(ConstantVariable.create(name))
        for name, value in mutations.items():
            is_own = self.side_effects.has_pending_mutation_of_attr(
                self.item, name, effects.AttrMutationKind.INSTANCE_DICT
            )
            if is_own and name not in self.item_dict and not isinstance(value, DeletedVariable):
                yield HashableTracker(ConstantVariable.create(name))

    yield tracked, "store_attr", store_attr
    yield weak, "__init__", init_reference
    yield own_dict, "reconstruct", reconstruct
    yield proxy, "__contains__", has_key
    yield proxy, "__iter__", keys


def is_made(variable: Any) -> bool:
    """Return whether a variable represents an object that the method makes."""
    from torch._dynamo.variables.base import AttributeMutationNew
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    return isinstance(variable, UserDefinedObjectVariable) and isinstance(variable.mutation_type, AttributeMutationNew)


def holds_made_object(variable: Any) -> bool:
    """Whether a variable is, or holds at any depth, an object that the method makes."""
    from torch._dynamo.variables.dicts import ConstDictVariable
    from torch._dynamo.variables.lists import BaseListVariable

    if isinstance(variable, BaseListVariable):
        return any(map(holds_made_object, variable.items))
    if isinstance(variable, ConstDictVariable):
        pairs = ((key.vt, value) for key, value in variable.items.items())
        return any(holds_made_object(part) for pair in pairs for part in pair)
    return is_made(variable)
