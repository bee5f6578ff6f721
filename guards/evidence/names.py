"""Stable names of classes, functions and modules."""

from __future__ import annotations

import types
from typing import Any


def module_of(value: Any) -> str:
    """Return the name of the module of a class or function; "" where a program has replaced it with another type."""
    name = getattr(value, "__module__", "")
    return name if isinstance(name, str) else ""


def a_type(value: Any) -> str:
    """Return the type of a value with its article, for messages: `an int`."""
    name = type(value).__qualname__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def name_of(value: Any) -> str:
    """Return `module:qualname` of a class, function, builtin or module."""
    if isinstance(value, types.ModuleType):
        return f"{value.__name__}:"
    if isinstance(value, types.MethodWrapperType):  # a slot of an object, `Tensor.T.__get__`: named after its type
        return f"{name_of(value.__self__)}.{value.__name__}"
    if type(value).__module__ == "torch._ops":  # all operators share the name of one C++ class
        return f"torch.ops:{value}"
    module = module_of(value) or module_of(type(value))
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or type(value).__qualname__
    return f"{module}:{name}"
