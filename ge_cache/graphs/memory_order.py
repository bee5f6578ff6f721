"""The order in which the dims of a tensor lie in its memory; kernels may choose another one than a trace says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx


def order_of(tensor: torch.Tensor) -> list[int] | None:
    """Return the dims of a tensor from the outermost to the innermost; None where it is not one piece of memory."""
    if tensor.layout != torch.strided:
        return None
    sizes, strides = (hints(numbers) for numbers in (tensor.shape, tensor.stride()))
    if sizes is None or strides is None or 0 in sizes:
        return None
    order = sorted(range(len(sizes)), key=lambda dim: (-strides[dim], -sizes[dim]))
    expected = 1
    for dim in reversed(order):
        if sizes[dim] != 1 and strides[dim] != expected:
            return None
        expected *= sizes[dim]
    return order


def hints(numbers: Sequence[Any]) -> list[int] | None:
    """Return sizes or strides in the traced call, without a guard; None where one is unknown."""
    hints = [number if isinstance(number, int) else number.node.hint for number in numbers]
    return None if None in hints else hints


def reshape_views(graph: fx.Graph) -> None:
    """Let a recorded graph that is not compiled copy where the memory of a kernel's result allows no view.

    Recorded after dispatch, `reshape` is the view that the memory of the trace's result would allow.
    """
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        node.target = torch.ops.aten.reshape.default
