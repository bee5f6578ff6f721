"""Decorated methods of models whose arguments are declared: an instance has such a method once it was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gearcache.serving.decorated_method import CachedFunction


def touch_declared(returned: Any) -> None:
    """Make the cached methods of all modules that a function has returned, alone or in lists, tuples and dicts."""
    for module in _modules(returned):
        for cls in type(module).__mro__:
            for name, member in vars(cls).items():
                if isinstance(member, CachedFunction) and member.is_declared:
                    getattr(module, name)


def _modules(value: Any) -> Iterator[torch.nn.Module]:
    if isinstance(value, torch.nn.Module):
        yield from value.modules()
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _modules(item)
    elif isinstance(value, dict):
        yield from _modules(list(value.values()))
