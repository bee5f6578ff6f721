"""Refuse traces that ask a process group for more than its name and its ranks.

A trace sees the group through a `FakeScriptObject`, whose class is not the group's. And the group of a job may differ
from the traced one: a prewarm traces with torch's backend `fake`.
"""

from __future__ import annotations

from typing import Any

from torch._dynamo.variables import script_object
from torch._dynamo.variables.builtin import BuiltinVariable

from gearcache.ge_cache.private_torch.probe import Probes
from gearcache.ge_cache.private_torch.renamed import name_here

#: Answers of a group that do not follow from its name and its ranks.
_VARYING_MEMBERS = ("_get_backend_name", "group_desc")
_WAY_OUT = "ask in `__init__`, and keep the answer as an attribute"
_ScriptObjectVariable: Any = getattr(script_object, name_here(script_object, "TorchScriptObjectVariable"))
probes = Probes()


@probes.at(BuiltinVariable, "call_type")
def asked_type(trace: Any, original: Any, self: Any, tx: Any, obj: Any) -> Any:
    """Refuse `type(group)`."""
    if isinstance(obj.realize(), _ScriptObjectVariable):
        trace.refuse(f"it asks for the type of a process group, which a trace does not see: {_WAY_OUT}")
    return original(self, tx, obj)


@probes.at(_ScriptObjectVariable, "var_getattr", "call_method")
def used_member(trace: Any, original: Any, self: Any, tx: Any, name: str, *arguments: Any, **keywords: Any) -> Any:
    """Refuse what another group would answer otherwise."""
    if name in _VARYING_MEMBERS:
        trace.refuse(f"it asks a process group for `{name}`, which may be another one in the next process: {_WAY_OUT}")
    return original(self, tx, name, *arguments, **keywords)
