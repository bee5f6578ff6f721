"""Report how a trace uses the identity of objects: compared, hashed, or found at two paths."""

from __future__ import annotations

import enum
import types
from typing import Any

from torch._dynamo.guards import GuardBuilder
from torch._dynamo.variables import object_protocol
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.constant import FakeIdVariable

from gearcache.ge_cache.private_torch.probe import Probes

#: Methods and attributes of C classes as objects, such as `torch.Tensor.cos`: Dynamo calls them without a guard.
DESCRIPTORS = (
    *(
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.MethodWrapperType,
        types.ClassMethodDescriptorType,
    ),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.BuiltinMethodType),
)
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
    """Note an object that was met before, and methods of C classes."""
    effects = self.tx.output.side_effects
    if value in effects:
        trace.note("met again", self.source, effects[value].source)
        if isinstance(value, enum.Enum):  # Dynamo guards a member at the first of its places only
            self.install_guards(GuardBuilder.ID_MATCH)
    elif isinstance(value, DESCRIPTORS):
        trace.note("descriptor", self.source)
    return original(self, value)
