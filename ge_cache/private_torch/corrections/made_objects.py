"""Watch the objects that a method makes.

For an object that a method makes, Dynamo has an example whose `__init__` has not run, and records writes separately.
Code that reads the example itself gets a wrong answer: its text, its `__dict__` as a value. Nor does the trace learn
when the last reference to an object goes, so neither `__del__` nor a weak reference can be right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field
from torch._dynamo import side_effects
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.variables.base import AttributeMutationNew
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.dicts import DunderDictVariable, SideEffectsProxyDict
from torch._dynamo.variables.hashable import HashableTracker
from torch._dynamo.variables.misc import DeletedVariable, WeakRefVariable
from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

from gearcache.ge_cache.private_torch.probe import Probes

effects: Any = side_effects
probes = Probes()


class _Recreated(Struct):
    """Attributes that a trace has deleted and made again: the object and the name."""

    attributes: set[tuple[Any, str]] = field(default_factory=set)


@probes.at(SideEffects, "store_attr")
def wrote(trace: Any, original: Any, self: Any, item: Any, name: str, *arguments: Any, **keywords: Any) -> Any:
    """Put a recreated attribute last in the `__dict__`."""
    mutations = self.store_attr_mutations.get(item, {})
    if isinstance(mutations.get(name), DeletedVariable):
        del mutations[name]
        trace.state(_Recreated).attributes.add((item, name))
    return original(self, item, name, *arguments, **keywords)


@probes.at(WeakRefVariable, "__init__")
def made_reference(trace: Any, original: Any, self: Any, referent: Any, *arguments: Any, **keywords: Any) -> None:
    """Refuse a weak reference to an object that the trace makes."""
    original(self, referent, *arguments, **keywords)
    if is_made(referent):
        trace.refuse("it makes a weak reference to an object that it made itself")


@probes.at(DunderDictVariable, "reconstruct")
def given_away(trace: Any, original: Any, self: Any, codegen: Any) -> None:
    """Refuse the `__dict__` of an object that the trace makes as a result."""
    if self.source is None:
        trace.refuse("it gives away the `__dict__` of an object that it makes; give away a copy: `dict(vars(o))`")
    original(self, codegen)


@probes.at(SideEffectsProxyDict, "__contains__")
def has_key(trace: Any, original: Any, self: Any, key: Any) -> bool:
    """Do not find a deleted attribute."""
    mutations = self.side_effects.store_attr_mutations.get(self.item, {})
    if isinstance(mutations.get(self._maybe_unwrap_key(key)), DeletedVariable):
        return False
    return bool(original(self, key))


@probes.at(SideEffectsProxyDict, "__iter__")
def keys(trace: Any, original: Any, self: Any) -> Iterator[Any]:
    """Yield the keys in Python's order: new ones last."""
    mutations = self.side_effects.store_attr_mutations.get(self.item, {})
    recreated = trace.state(_Recreated).attributes
    if any((self.item, name) in recreated for name in self.item_dict):
        trace.refuse("it lists the attributes of an object of which it has deleted one and made it anew")
    for name in self.item_dict:
        if not isinstance(mutations.get(name), DeletedVariable):
            yield HashableTracker(ConstantVariable.create(name))
    for name, value in mutations.items():
        is_own = self.side_effects.has_pending_mutation_of_attr(self.item, name, effects.AttrMutationKind.INSTANCE_DICT)
        if is_own and name not in self.item_dict and not isinstance(value, DeletedVariable):
            yield HashableTracker(ConstantVariable.create(name))


def is_made(variable: Any) -> bool:
    """Return whether a variable represents an object that the method makes."""
    return isinstance(variable, UserDefinedObjectVariable) and isinstance(variable.mutation_type, AttributeMutationNew)
