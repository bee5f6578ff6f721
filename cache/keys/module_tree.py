"""The modules, parameters and buffers of a module, read from its own dictionaries.

A user's attribute may hide `named_modules` and similar methods (`self.modules = 3`), and a class may override them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_PARTS = ("_modules", "_parameters", "_buffers")


Modules = list[tuple[str, Any]]


def named_modules(module: Any) -> Modules:
    """Return dotted path and module: itself, then all below it; a shared module at each of its places."""
    modules: Modules = []
    _collect(module, "", modules)
    return modules


def _collect(module: Any, path: str, modules: Modules) -> None:
    modules.append((path, module))
    for name, child in _own_members(module, "_modules"):
        _collect(child, f"{path}.{name}" if path else name, modules)


def named_children(module: Any) -> list[tuple[str, Any]]:
    """Return name and module of those directly below a module."""
    return _own_members(module, "_modules")


def named_parameters(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield dotted path and tensor of every parameter, at each of its places."""
    return named_members(named_modules(module), "_parameters")


def named_buffers(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield dotted path and tensor of every buffer, at each of its places."""
    return named_members(named_modules(module), "_buffers")


def named_members(modules: Modules, dictionary: str) -> Iterator[tuple[str, Any]]:
    """Yield dotted path and value of what one of the dictionaries of each of some modules holds."""
    for path, child in modules:
        for name, value in _own_members(child, dictionary):
            yield f"{path}.{name}" if path else name, value


def hidden_names(modules: Modules) -> list[str]:
    """Return the registered modules, parameters and buffers behind an entry of `__dict__` of the same name.

    Python finds the entry. A trace finds it too, but its paths lead to what is registered.
    """
    hidden = []
    for path, child in modules:
        attributes = object.__getattribute__(child, "__dict__")
        for dictionary in _PARTS:
            registered = _dictionary(child, dictionary).keys()
            if not attributes.keys().isdisjoint(registered):
                names = sorted(attributes.keys() & set(registered))
                hidden += [f"{path}.{name}" if path else name for name in names]
    return hidden


def _own_members(module: Any, dictionary: str) -> list[tuple[str, Any]]:
    members = _dictionary(module, dictionary)
    return [(name, value) for name, value in members.items() if value is not None] if members else []


def _dictionary(module: Any, name: str) -> Any:
    """Return a dictionary of a module; that of `torch.jit.trace` keeps them in another object, which it forwards to."""
    attributes = object.__getattribute__(module, "__dict__")
    return attributes[name] if name in attributes else getattr(module, name)
