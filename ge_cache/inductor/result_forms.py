"""Give results of a compiled graph the dtypes and strides that the trace promises, which are eager's.

Inductor keeps the strides of its input, but decomposes operators before that: its `cat` of one tensor is a `clone`,
which keeps the strides of the tensor, where torch's own is contiguous. So the memory order of the dims is noted while
the graph is recorded, and results in another order are rearranged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gearcache.ge_cache.graphs.memory_order import hints, order_of
from gearcache.ge_cache.private_torch.codegen.inductor import record_strides_anew

#: For each result the name of its dtype, and its dims from the outermost to the innermost, or None where it is not one
#: piece of memory; None for what is no tensor.
Forms = Sequence[Sequence[Any] | None]


def result_forms(module: torch.fx.GraphModule) -> list[list[Any] | None]:
    """Return the forms of the outputs of a recorded graph."""
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    return [form_of(node.meta.get("val")) if isinstance(node, torch.fx.Node) else None for node in output.args[0]]


def form_of(tensor: Any) -> list[Any] | None:
    """Return the form of a result."""
    return [str(tensor.dtype), order_of(tensor)] if isinstance(tensor, torch.Tensor) else None


def check_dtypes(graph: torch.fx.GraphModule, forms: Forms) -> None:
    """Raise `TypeError` for a result of another dtype: torch was in another state when the graph was recorded."""
    present = result_forms(graph)
    for place, (form, recorded) in enumerate(zip(present, forms, strict=False) if len(present) == len(forms) else ()):
        if form is not None and recorded is not None and form[0] != recorded[0]:
            raise TypeError(f"result {place} of the compiled graph would be {form[0]}, was recorded as {recorded[0]}")


def put_in_form(graph: torch.fx.GraphModule, forms: Forms) -> None:
    """Give the results of a graph their orders; the graph is the one that Inductor lowers. Raises as `check_dtypes`."""
    check_dtypes(graph, forms)
    (output,) = [node for node in graph.graph.nodes if node.op == "output"]
    results = list(output.args[0])
    if len(results) != len(forms):  # a graph that writes its inputs differently than recorded
        return
    for place, (node, form) in enumerate(zip(results, forms, strict=True)):
        value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
        if form is None or not isinstance(value, torch.Tensor):
            continue
        order = form[1]
        if order is None or value.dim() != len(order) or _lies(value, order):
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
    sizes, strides = (hints(numbers) for numbers in (tensor.shape, tensor.stride()))
    if sizes is None or strides is None:
        return True
    expected = 1
    for dim in reversed(order):
        if sizes[dim] > 1 and strides[dim] != expected:
            return False
        expected *= sizes[dim]
    return True
