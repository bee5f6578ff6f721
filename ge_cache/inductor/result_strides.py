"""Give results of a compiled graph the strides that the trace promises, which are eager's.

Inductor keeps the strides of its input, but decomposes operators before that: its `cat` of one tensor is a `clone`,
which keeps the strides of the tensor, where torch's own is contiguous. So the memory order of the dims is noted while
the graph is recorded, and results in another order are rearranged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gearcache.ge_cache.private_torch.codegen.inductor import record_strides_anew

#: For each result the dims from the outermost to the innermost; None where it is not one piece of memory.
Orders = Sequence[Sequence[int] | None]


def result_orders(module: torch.fx.GraphModule) -> list[list[int] | None]:
    """Return the orders of the outputs of a recorded graph."""
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    return [order_of(node.meta.get("val")) if isinstance(node, torch.fx.Node) else None for node in output.args[0]]


def order_of(tensor: Any) -> list[int] | None:
    """Return the dims of a tensor from the outermost to the innermost; None where it is not one piece of memory."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
        return None
    sizes, strides = (_hints(numbers) for numbers in (tensor.shape, tensor.stride()))
    if sizes is None or strides is None or 0 in sizes:
        return None
    order = sorted(range(len(sizes)), key=lambda dim: (-strides[dim], -sizes[dim]))
    expected = 1
    for dim in reversed(order):
        if sizes[dim] != 1 and strides[dim] != expected:
            return None
        expected *= sizes[dim]
    return order


def put_in_order(graph: torch.fx.GraphModule, orders: Orders) -> None:
    """Give the results of a graph these orders; the graph is the one that Inductor lowers."""
    (output,) = [node for node in graph.graph.nodes if node.op == "output"]
    results = list(output.args[0])
    if len(results) != len(orders):  # a graph that writes its inputs differently than recorded
        return
    for place, (node, order) in enumerate(zip(results, orders, strict=True)):
        value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
        if order is None or not isinstance(value, torch.Tensor) or value.dim() != len(order) or _lies(value, order):
            continue
        back = [order.index(dim) for dim in range(len(order))]
        with graph.graph.inserting_before(output):
            steps: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
                (torch.ops.aten.permute.default, (list(order),), {}),
                (torch.ops.aten.clone.default, (), {"memory_format": torch.contiguous_format}),
                (torch.ops.aten.permute.default, (back,), {}),
            ]
            for operator, arguments, keywords in steps:
                value = operator(value, *arguments, **keywords)
                node = graph.graph.call_function(operator, (node, *arguments), keywords)
                node.meta["val"] = value
        results[place] = node
    output.args = (type(output.args[0])(results),)
    record_strides_anew(graph)
    graph.recompile()


def _lies(tensor: torch.Tensor, order: Sequence[int]) -> bool:
    """Return whether a tensor has a memory order; strides of dims of size 1 do not matter."""
    sizes, strides = (_hints(numbers) for numbers in (tensor.shape, tensor.stride()))
    if sizes is None or strides is None:
        return True
    expected = 1
    for dim in reversed(order):
        if sizes[dim] > 1 and strides[dim] != expected:
            return False
        expected *= sizes[dim]
    return True


def _hints(numbers: Sequence[Any]) -> list[int] | None:
    """Return sizes or strides in the traced call, without a guard; None where one is unknown."""
    hints = [number if isinstance(number, int) else number.node.hint for number in numbers]
    return None if None in hints else hints
