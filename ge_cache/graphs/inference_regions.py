"""Find the outputs of a graph that a method makes inside its own `with torch.inference_mode():`.

A recorded graph has no modes. A tensor made in a region of the method is an inference tensor in eager mode, which a
caller can detect. So the memory of each output is followed to the operation that made it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from gearcache.ge_cache.private_torch import core as private_core


def begin(is_on: bool = True) -> None:
    """Mark in a graph where a region begins."""


def end(region: Any) -> None:
    """Mark in a graph where a region ends."""


def regions_of_outputs(module: fx.GraphModule, arguments: list[torch.Tensor]) -> list[bool | None]:
    """Return per output whether it is made with inference mode on, off, or (None) in the mode of its caller.

    Runs the graph on fake tensors. An output that shares memory with an argument is None.
    """
    if not any(node.target is begin for node in module.graph.nodes):
        return []
    interpreter = _Followed(module, arguments)
    outputs = interpreter.run(*arguments)
    return [interpreter.made.get(private_core.storage_key(value)) if _is_tensor(value) else None for value in outputs]


class _Followed(fx.Interpreter):
    """Runs a graph and notes the region where each memory appears first; keeps all values, so none is reused."""

    def __init__(self, module: fx.GraphModule, arguments: list[torch.Tensor]) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.made: dict[Any, bool | None] = {private_core.storage_key(tensor): None for tensor in arguments}
        self._regions: list[bool] = []

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.target is begin:
            self._regions.append(bool(n.args[0]))
        elif n.target is end:
            self._regions.pop()
        for tensor in _tensors(value):
            self.made.setdefault(private_core.storage_key(tensor), self._regions[-1] if self._regions else None)
        return value


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return [value] if isinstance(value, torch.Tensor) else []


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
