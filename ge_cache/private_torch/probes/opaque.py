"""Refuse values whose content a trace does not see, so that nothing can compare it.

Dynamo reads some as if they were plain objects, but what it reads is another object's, or memory of C. In those of
TorchScript it finds nothing that it could trace. Of arrays and scalars of NumPy it makes tensors. A process group it
sees through a `FakeScriptObject`, whose class is not the group's. And the group of a job may differ from the traced
one: a prewarm traces with torch's backend `fake`. So a trace may ask for its name and its ranks only.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import torch
from torch._dynamo.variables import script_object
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.tensor import NumpyNdarrayVariable

from gearcache.ge_cache.private_torch.probe import Probes
from gearcache.ge_cache.private_torch.renamed import name_here

_PROXY = "a `weakref.proxy`, through which no change of the object is seen: hold a `weakref.ref` and call it"
#: The base class of all of ctypes, which has no public name.
_C_DATA: type = ctypes.Structure.__mro__[1]
#: Classes of such values -> why they are refused, and what to do instead.
_CAUSES: dict[type, str] = {
    weakref.ProxyType: _PROXY,
    weakref.CallableProxyType: _PROXY,
    torch.jit.ScriptModule: "a module of TorchScript, which cannot be traced: use the module that it was made from",
    _C_DATA: "a value of ctypes, whose memory may change unseen: keep its number as an attribute, or pass it",
}
#: Answers of a process group that do not follow from its name and its ranks.
_VARYING_MEMBERS = ("_get_backend_name", "group_desc")
_ASK_BEFORE = "ask in `__init__`, and keep the answer as an attribute"
_ScriptObjectVariable: Any = getattr(script_object, name_here(script_object, "TorchScriptObjectVariable"))
probes = Probes()


@probes.at(VariableBuilder, "_call_impl")
def met(trace: Any, original: Any, self: Any, value: Any) -> Any:
    """Refuse such a value when the trace first uses it."""
    for cls, cause in _CAUSES.items():
        if issubclass(type(value), cls):  # `isinstance` would ask the object behind a proxy
            trace.refuse(f"it uses `{self.source.name}`, {cause}", at_once=True)
    if (type(value).__module__, type(value).__name__) == ("numpy", "ndarray"):  # Dynamo would make it writeable
        _refuse_numpy(trace, at_once=True)
    return original(self, value)


@probes.at(NumpyNdarrayVariable, "__init__")
def imitated(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Refuse an array or a scalar that becomes a tensor."""
    _refuse_numpy(trace)
    original(self, *arguments, **keywords)


@probes.at(BuiltinVariable, "call_type")
def asked_type(trace: Any, original: Any, self: Any, tx: Any, obj: Any) -> Any:
    """Refuse `type(group)`."""
    if isinstance(obj.realize(), _ScriptObjectVariable):
        trace.refuse(f"it asks for the type of a process group, which a trace does not see: {_ASK_BEFORE}")
    return original(self, tx, obj)


@probes.at(_ScriptObjectVariable, "var_getattr", "call_method")
def used_member(trace: Any, original: Any, self: Any, tx: Any, name: str, *arguments: Any, **keywords: Any) -> Any:
    """Refuse what another group would answer otherwise."""
    if name in _VARYING_MEMBERS:
        trace.refuse(
            f"it asks a process group for `{name}`, which may be another one in the next process: {_ASK_BEFORE}"
        )
    return original(self, tx, name, *arguments, **keywords)


def _refuse_numpy(trace: Any, *, at_once: bool = False) -> None:
    trace.refuse(
        "it computes with NumPy, or asks about an array or a scalar of it, which torch imitates with other dtypes "
        "and classes: make it float(...), int(...) or torch.from_numpy(...) where it is assigned or given, and use "
        "`math` or torch in place of functions of NumPy",
        at_once=at_once,
    )
