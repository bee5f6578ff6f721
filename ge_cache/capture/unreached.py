"""Find the modules below an instance that a trace did not reach, so that nothing of the variant depends on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def unreached_modules(instance: Any, objects: Iterable[Any]) -> list[str]:
    """Return the paths of modules of which the trace reached nothing, neither them nor a module below them.

    `objects` are those on the paths of everything that the trace depends on. Of a module and those below it, only the
    uppermost is named.
    """
    from gearcache.cache.module_tree import named_children  # the backends load nothing of `cache/` by themselves

    reached = {id(value) for value in objects if isinstance(value, torch.nn.Module)}
    found: list[str] = []

    def visit(module: Any, path: str) -> bool:
        below = [(child, f"{path}.{name}" if path else name) for name, child in named_children(module)]
        were = [(inner, visit(child, inner)) for child, inner in below]
        if id(module) not in reached and not any(is_reached for _, is_reached in were):
            return False
        found.extend(inner for inner, is_reached in were if not is_reached)
        return True

    visit(instance, "")
    return sorted(found)
