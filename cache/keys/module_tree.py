"""The modules, parameters and buffers of a module, read from its own dictionaries.

A user's attribute may hide `named_modules` and similar methods (`self.modules = 3`), and a class may override them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_PARTS = ("_modules", "_parameters", "_buffers")


def named_modules(module: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted path and module: itself, then all below it; a shared module at each of its places."""
    yield path, module
    for name, child in named_children(module):
        yield from named_modules(child, f"{path}.{name}" if path else name)


def named_children(module: Any) -> list[tuple[str, Any]]:
    """Return name and module of those directly below a module."""
    return _own_members(module, "_modules")


def named_parameters(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield dotted path and tensor of every parameter, at each of its places."""
    return _members(module, "_parameters")


def named_buffers(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield dotted path and tensor of every buffer, at each of its places."""
    return _members(module, "_buffers")


def hidden_names(module: Any) -> list[str]:
    """Return the registered modules, parameters and buffers behind an entry of `__dict__` of the same name.

    Python finds the entry. A trace finds it too, but its paths lead to what is registered.
    """
    hidden = []
    for path, child in named_modules(module):
        attributes = object.__getattribute__(child, "__dict__")
        for dictionary in _PARTS:
            names = attributes.keys() & attributes[dictionary].keys()
            hidden += [f"{path}.{name}" if path else name for name in sorted(names)]
    return hidden


def _members(module: Any, dictionary: str) -> Iterator[tuple[str, Any]]:
    for path, child in named_modules(module):
        for name, tensor in _own_members(child, dictionary):
            yield f"{path}.{name}" if path else name, tensor


def _own_members(module: Any, dictionary: str) -> list[tuple[str, Any]]:
    members = object.__getattribute__(module, "__dict__")[dictionary]
    return [(name, value) for name, value in members.items() if value is not None]
