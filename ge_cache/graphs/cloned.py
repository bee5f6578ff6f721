"""Find inputs that a graph copies, because of their strides, before it returns or writes a view of them.

`x.t().contiguous()` is a copy where `x` is contiguous, and a view of `x` where `x.t()` is. So a graph recorded for one
of these cases must not serve the other, not even with a copy of `x`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from gearcache.ge_cache.graphs.arguments import written_arguments
from gearcache.ge_cache.private_torch import core as private_core

_ATEN = torch.ops.aten
#: Operators that copy a tensor or not, depending on its strides.
_COPIES = {
    _ATEN.reshape,
    _ATEN.contiguous,
    _ATEN.flatten,
    _ATEN.ravel,
    _ATEN.clone,
    _ATEN._reshape_copy,
    _ATEN._unsafe_view,
    _ATEN.to,
    _ATEN._to_copy,
    _ATEN.view_as,
    _ATEN.reshape_as,
    _ATEN.unflatten,
}


def cloned_inputs(module: fx.GraphModule, count: int) -> list[int]:
    """Return which of the first `count` placeholders have such a copy among the results and written tensors."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"][:count]
    positions = {node: index for index, node in enumerate(placeholders)}
    cloned = {
        positions[origin]
        for node in _results_and_written(module.graph)
        for origin in _origins(node)
        if origin in positions
    }
    return sorted(cloned)


def _results_and_written(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield the results of a graph, and the tensors that it writes."""
    for node in graph.nodes:
        if node.op == "output":
            yield from node.all_input_nodes
        else:
            yield from written_arguments(node)


def _origins(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the placeholder behind a node, if views lead to it through at least one operator that may copy."""
    is_copied = False
    while node.op == "call_function":
        target: Any = node.target
        packet = getattr(target, "overloadpacket", None)
        if packet in _COPIES:
            is_copied = True
        elif target is not operator.getitem and not _is_view(target):
            return
        if not node.args or not isinstance(node.args[0], fx.Node):
            return
        node = node.args[0]
    if is_copied and node.op == "placeholder":
        yield node


def _is_view(target: Any) -> bool:
    """Whether an operator returns its first argument, or views of it."""
    if not isinstance(target, private_core.OpOverload) or not target._schema.arguments:
        return False
    alias = target._schema.arguments[0].alias_info
    return alias is not None and any(result.alias_info is not None for result in target._schema.returns)
