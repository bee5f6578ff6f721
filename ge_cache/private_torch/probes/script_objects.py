"""Dynamo hooks for traces that ask a process group for more than its name and its ranks.

A trace sees the group through a `FakeScriptObject`, whose class is not the group's. And the group of a job may differ
from the traced one: a prewarm traces with torch's backend `fake`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from gearcache.ge_cache.private_torch.renamed import name_here

#: Answers of a group that do not follow from its name and its ranks.
_VARYING_MEMBERS = ("_get_backend_name", "group_desc")
_WAY_OUT = "ask in `__init__`, and keep the answer as an attribute"


def watched_script_objects(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of functions that ask a script object for its class and its members."""
    from torch._dynamo.variables import script_object as module
    from torch._dynamo.variables.builtin import BuiltinVariable

    builtin: Any = BuiltinVariable
    script_object: Any = getattr(module, name_here(module, "TorchScriptObjectVariable"))
    attribute = name_here(script_object, "var_getattr")
    type_of, getattr_of, call_of = builtin.call_type, getattr(script_object, attribute), script_object.call_method

    @functools.wraps(type_of)
    def call_type(self: Any, tx: Any, obj: Any) -> Any:
        if isinstance(obj.realize(), script_object):
            facts.refuse(f"it asks for the type of a process group, which a trace does not see: {_WAY_OUT}")
        return type_of(self, tx, obj)

    @functools.wraps(getattr_of)
    def var_getattr(self: Any, tx: Any, name: str) -> Any:
        refuse_member(name)
        return getattr_of(self, tx, name)

    @functools.wraps(call_of)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        refuse_member(name)
        return call_of(self, tx, name, args, kwargs)

    def refuse_member(name: str) -> None:
        if name in _VARYING_MEMBERS:
            facts.refuse(
                f"it asks a process group for `{name}`, which may be another one in the next process: {_WAY_OUT}"
            )

    yield builtin, "call_type", call_type
    yield script_object, attribute, var_getattr
    yield script_object, "call_method", call_method
