"""Report the objects that a trace reads, and how it uses their identity: compared, hashed, or found at two paths."""

from __future__ import annotations

import enum
import types
from typing import Any

from torch._dynamo.guards import GuardBuilder
from torch._dynamo.source import AttrSource
from torch._dynamo.variables import object_protocol
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.constant import FakeIdVariable

from gearcache.ge_cache.dependencies.seen import Seen
from gearcache.ge_cache.private_torch.probe import Probes, overriding
from gearcache.guards.access import own_attributes

#: Methods and attributes of C classes as objects, such as `torch.Tensor.cos`: Dynamo calls them without a guard.
_DESCRIPTORS = (
    *(
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.MethodWrapperType,
        types.ClassMethodDescriptorType,
    ),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.BuiltinMethodType),
)
_HOOKS = ("_hooks", "_hooks_with_kwargs")
probes = Probes()


@probes.at(object_protocol, "vt_identity_compare")
def compared(trace: Any, original: Any, left: Any, right: Any) -> Any:
    """Note two objects that are compared."""
    trace.note("compared", left.source, right.source)
    return original(left, right)


@probes.at(object_protocol, "generic_hash_impl")
def hashed(trace: Any, original: Any, tx: Any, variable: Any) -> Any:
    """Note an object that is hashed."""
    if isinstance(variable, FakeIdVariable):
        trace.note("number looked up")
    else:
        trace.note("hashed", variable.source)
    return original(tx, variable)


@probes.at(VariableBuilder, "_call_impl")
def met(trace: Any, original: Any, self: Any, value: Any) -> Any:
    """Note an object before and after its content is read, whether it was met before, and methods of C classes."""
    seen, output, source = trace.state(Seen), self.tx.output, self.source
    effects = output.side_effects
    is_known = value in effects
    is_new = not is_known and output.variable_tracker_cache.get(source) is None
    if is_known:
        trace.note("met again", source, effects[value].source)
        if isinstance(value, enum.Enum):  # Dynamo guards a member at the first of its places only
            self.install_guards(GuardBuilder.ID_MATCH)
    elif isinstance(value, _DESCRIPTORS):
        trace.note("descriptor", source)
    seen.add(source, value)
    result = original(self, value)
    items = getattr(result, "__dict__", {}).get("items")  # read past the probes of that field
    # Not `self.source`: for what `torch.compile` returned, the builder goes on with the module in it.
    seen.add(source, value, count=len(items) if is_new and isinstance(items, (list, dict)) else None)
    return result


@probes.at_each(lambda: overriding(VariableTracker, "var_getattr"))
def read_hooks(trace: Any, original: Any, self: Any, tx: Any, name: Any, *rest: Any, **keywords: Any) -> Any:
    """Note the hooks of a module, which Dynamo reads without building a variable of the dictionary."""
    hooks = None
    if isinstance(name, str) and name.endswith(_HOOKS) and self.source is not None:
        hooks = (own_attributes(getattr(self, "value", None)) or {}).get(name)
    if hooks is None:
        return original(self, tx, name, *rest, **keywords)
    seen, place = trace.state(Seen), AttrSource(self.source, name)
    seen.add(place, hooks)
    result = original(self, tx, name, *rest, **keywords)
    seen.add(place, hooks)
    return result
