"""Refuse writes that a trace does not follow: to globals, and to attributes of classes and modules.

Dynamo keeps a trace's writes with the object that is written, and only a read through that object sees the new value. A
class is also read through its instances and subclasses, a global also as an attribute of its module: there Dynamo finds
the value from before the trace.
"""

from __future__ import annotations

import types
from typing import Any

from torch._dynamo.side_effects import SideEffects
from torch._dynamo.variables.misc import DeletedVariable, NewGlobalVariable

from gearcache.errors import MethodRaises
from gearcache.ge_cache.private_torch.probe import Probes
from gearcache.guards.access import MODULE_PARTS

probes = Probes()


@probes.at(SideEffects, "store_attr")
def wrote(trace: Any, original: Any, self: Any, item: Any, name: str, value: Any, *rest: Any, **keywords: Any) -> Any:
    """Refuse a global, and an attribute of a class or a module; an attribute that is deleted has to be there."""
    owner = vars(item).get("value")
    if isinstance(item, NewGlobalVariable):
        _refuse(trace, f"the global `{name}`")
    elif isinstance(owner, (type, types.ModuleType)):
        kind = "class" if isinstance(owner, type) else "module"
        _refuse(trace, f"`{name}` of the {kind} `{owner.__name__}`")
    if isinstance(value, DeletedVariable):
        if self.has_pending_mutation_of_attr(item, name):
            is_there = not isinstance(self.load_attr(item, name, deleted_ok=True), DeletedVariable)
        else:
            is_there = name in _attributes(owner)
        if not is_there:
            raise MethodRaises(trace.method, f"it deletes `{name}`, which is not there at this call")
    return original(self, item, name, value, *rest, **keywords)


def _refuse(trace: Any, what: str) -> None:
    trace.refuse(
        f"it writes to {what}, which a trace does not follow: keep what changes in an attribute of the instance, and "
        "set a switch of torch around the call",
        at_once=True,
    )


def _attributes(value: Any) -> set[str]:
    """Return the names of an object's attributes that can be deleted."""
    try:
        instance_dict = object.__getattribute__(value, "__dict__")
    except AttributeError:
        instance_dict = {}
    names = {*instance_dict, *(name for part in MODULE_PARTS for name in instance_dict.get(part, ()))}
    slots = {name for base in type(value).__mro__ for name, member in vars(base).items() if _is_slot(member)}
    return names | {name for name in slots if hasattr(value, name)}


def _is_slot(value: Any) -> bool:
    return isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType, property))
