"""Whether a graph can take the numbers that its operators want as tensors of one element."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from gearcache.errors import CaptureError
from gearcache.ge_cache.backend import Backend
from gearcache.ge_cache.capture.captured import Capture
from gearcache.ge_cache.graphs.arguments import given_arguments
from gearcache.ge_cache.graphs.static import input_spec, lift_attributes, trace_gear
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import symbols as private_symbols


def check_numbers(
    capture: Capture, backend: Backend, decompositions: Mapping[Any, Any] | None, *, is_padded: bool
) -> None:
    """Raise `CaptureError` where the ints of a capture cannot stay symbolic.

    Its graph is recorded once for that, at the sizes of the call. A number may be an operand of operators, as the 2 of
    `x * 2`; what gives a size, a stride or an index is left to graphs of one value.
    """
    if is_padded and (capture.numbers.feeds or any(check.kind == "numbers" for check in capture.checks)):
        raise CaptureError("", "calls are padded, which is not proven for a graph that depends on a number")
    if not capture.numbers.feeds:
        return
    if not backend.takes_feeds:
        raise CaptureError("", f"backend `{backend.name}` takes no numbers")
    symbols = capture.symbols()
    inputs = [input_spec(item, lambda size: symbols.value(size, {})) for item in capture.inputs]
    try:
        graph = trace_gear(capture, lift_attributes(capture), inputs, decompositions)
    except Exception as error:  # whatever torch raises where a size depends on a number
        raise CaptureError("", f"its graph does not take a number: {type(error).__name__}: {error}") from error
    for node in graph.module.graph.nodes:
        _check_node(node, backend)


def _check_node(node: fx.Node, backend: Backend) -> None:
    if private_symbols.gives_number(node):
        for user in node.users:
            if not _is_operand(node, user):
                raise CaptureError("", f"`{user.target}` takes a number otherwise than as an operand")
            if backend.compiles and any(_is_narrow(item) for item in (user, *user.all_input_nodes)):
                # Inductor rounds the number to the tensor's type first; eager, and a number in the code, are exact.
                raise CaptureError("", f"`{user.target}` computes with a number in 16 bits")
        return
    values = node.meta.get("val")
    for value in values if isinstance(values, (list, tuple)) else [values]:
        if isinstance(value, torch.Tensor):
            numbers = (*value.shape, *value.stride(), value.storage_offset())
            if any(isinstance(number, torch.SymInt) for number in numbers):
                raise CaptureError("", f"the sizes or strides of `{node}` depend on a number")
        elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise CaptureError("", f"`{node.target}` computes with a number")


def _is_narrow(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point and value.dtype.itemsize < 4


def _is_operand(number: fx.Node, user: fx.Node) -> bool:
    """Whether an operator takes a number where its schema has a scalar or (as the 2 of `x + 2`) a tensor."""
    if not isinstance(user.target, private_core.OpOverload):
        return False
    kinds = {item.name: str(item.type) for item in user.target._schema.arguments}
    taken = [name for name, value in given_arguments(user).items() if value is number]
    return bool(taken) and all(kinds[name] in ("number", "Optional[number]", "Tensor") for name in taken)
