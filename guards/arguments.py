"""Tensors inside call arguments: find them by path, and make an equal call with other tensors."""

from __future__ import annotations

import copy
import types
from collections.abc import Mapping
from typing import Any

import torch

from gearcache.guards.access import own_attributes

_MAX_DEPTH = 12


def find_tensors(arguments: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return argument path -> tensor, through lists, tuples, dicts, dataclasses and other objects.

    Modules are not entered: their content is the method's own state. Paths are those of `Access.text`.
    """
    tensors: dict[str, torch.Tensor] = {}
    seen_ids: set[int] = set()
    for name, value in arguments.items():
        _find(value, name, tensors, seen_ids, 0)
    return tensors


def _find(value: Any, path: str, tensors: dict[str, torch.Tensor], seen_ids: set[int], depth: int) -> None:
    if isinstance(value, torch.Tensor):
        tensors[path] = value
        return
    if depth > _MAX_DEPTH or id(value) in seen_ids or issubclass(type(value), (str, bytes, int, float, type(None))):
        return
    children = _children(value)
    if children:
        seen_ids.add(id(value))
        for (kind, name), child in children:
            _find(child, f"{path}.{name}" if kind == "attr" else f"{path}[{name!r}]", tensors, seen_ids, depth + 1)


def _children(value: Any) -> list[tuple[tuple[str, Any], Any]]:
    """Return the children of a value with the access path steps to them; no code of the value's class runs."""
    kind = type(value)
    if issubclass(kind, (list, tuple)):
        names = getattr(kind, "_fields", None)
        items = tuple.__iter__(value) if issubclass(kind, tuple) else list.__iter__(value)
        if names:
            return [(("attr", name), child) for name, child in zip(names, items, strict=False)]
        return [(("item", index), child) for index, child in enumerate(items)]
    if issubclass(kind, dict):
        return [(("item", key), child) for key, child in dict.items(value)]
    if issubclass(kind, (torch.nn.Module, type, types.ModuleType)) or callable(value):
        return []
    return [(("attr", name), child) for name, child in (own_attributes(value) or {}).items()]


def replace_tensors(value: Any, replacements: Mapping[int, torch.Tensor], memo: dict[int, Any] | None = None) -> Any:
    """Return `value` with tensors replaced by identity; a value without such a tensor is returned unchanged.

    Containers and objects on the way are copied shallowly, so the caller's own are not changed.
    """
    memo = {} if memo is None else memo
    if isinstance(value, torch.Tensor):
        return replacements.get(id(value), value)
    if id(value) in memo:
        return memo[id(value)]
    memo[id(value)] = value
    children = _children(value)
    if not children:
        return value
    new_children = {step: replace_tensors(child, replacements, memo) for step, child in children}
    if all(new_children[step] is child for step, child in children):
        return value
    result: Any
    if isinstance(value, tuple):
        items = [new_children[step] for step, _ in children]
        result = type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    elif isinstance(value, list):
        result = copy.copy(value)
        result[:] = [new_children[step] for step, _ in children]
    elif isinstance(value, dict):
        result = copy.copy(value)
        for key, (step, _) in zip(list(value), children, strict=True):
            result[key] = new_children[step]
    else:
        result = copy.copy(value)
        for name, (step, _) in zip(list(own_attributes(value) or ()), children, strict=True):
            object.__setattr__(result, name, new_children[step])
    memo[id(value)] = result
    return result
