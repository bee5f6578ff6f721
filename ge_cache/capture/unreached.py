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
    from gearcache.cache.keys.module_tree import named_children  # the backends load nothing of `cache/` by themselves

    reached = {id(value) for value in (instance, *objects) if isinstance(value, torch.nn.Module)}
    paths: list[str] = []

    def visit(module: Any, path: str) -> bool:
        children = [(child, f"{path}.{name}" if path else name) for name, child in named_children(module)]
        outcomes = [(child_path, visit(child, child_path)) for child, child_path in children]
        if id(module) not in reached and not any(is_reached for _, is_reached in outcomes):
            return False
        paths.extend(child_path for child_path, is_reached in outcomes if not is_reached)
        return True

    visit(instance, "")
    return sorted(paths)
