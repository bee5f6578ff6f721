"""What identifies a method and its decompositions: names and code, for the key."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from gearcache.guards.code import code_digest
from gearcache.guards.names import name_of


def method_component(function: types.FunctionType) -> dict[str, Any]:
    """Return module, name and code of a method, through all decorators that keep `__wrapped__`."""
    codes = []
    inner: Any = function
    while inner is not None:
        code = getattr(inner, "__code__", None)
        codes.append(code_digest(code) if isinstance(code, types.CodeType) else name_of(inner))
        inner = getattr(inner, "__wrapped__", None)
    return {"name": name_of(function), "code": codes}


def decompositions_component(decompositions: Mapping[Any, Callable[..., Any]] | None) -> list[list[str]]:
    """Return operator names and the code of their decompositions."""
    found = []
    for operator, function in (decompositions or {}).items():
        code = getattr(function, "__code__", None)
        found.append([str(operator), name_of(function), code_digest(code) if isinstance(code, types.CodeType) else ""])
    return sorted(found)
