"""How the operators of a graph take floats that vary: as Python's, or from the tensor that has one, to be compiled.

Inductor, also within `torch.compile`, rounds a float that it reads from a tensor (`x * t.item()`) to 32 bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

aten = torch.ops.aten
_READS = (aten.item.default, aten._local_scalar_dense.default)
#: Operators with a number as second operand -> the same with a tensor.
_BINARY = {
    **{getattr(aten, name).Tensor: getattr(aten, name).Tensor for name in ("add", "sub", "mul", "div")},
    **{getattr(aten, name).Tensor: getattr(aten, name).Tensor for name in ("add_", "sub_", "mul_", "div_")},
    **{getattr(aten, name).Scalar: getattr(aten, name).Tensor for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}


def takes_tensor(user: fx.Node, read: fx.Node) -> bool:
    """Whether `keep_tensor_operands` gives an operator the tensor of a float that it takes."""
    given: Any = user.args
    if user.target is aten.scalar_tensor.default:
        return True
    is_operand = len(given) == 2 and given[1] is read and given[0] is not read and _is_operand(given[0])
    return is_operand and not user.kwargs and (user.target in _BINARY or user.target is aten.rsub.Scalar)


def keep_tensor_operands(graph: fx.Graph) -> None:
    """Rewrite a recorded graph, whose nodes have fake values."""
    for read in [node for node in graph.nodes if node.target in _READS]:
        if read.args[0].meta["val"].dtype.is_floating_point:
            for user in list(read.users):
                _rewrite(graph, read, user)
            if not read.users:
                graph.erase_node(read)


def take_plain_floats(graph: fx.Graph, first: int, count: int) -> None:
    """Let a recorded graph that is not compiled take its floats as Python's: placeholders from `first` on."""
    for placeholder in graph.find_nodes(op="placeholder")[first : first + count]:
        for read in list(placeholder.users):
            read.replace_all_uses_with(placeholder)
            graph.erase_node(read)


def _rewrite(graph: fx.Graph, read: fx.Node, user: fx.Node) -> None:
    if not takes_tensor(user, read):
        return
    with graph.inserting_before(user):
        scalar = _add(graph, aten.reshape.default, (read.args[0], []))
        if user.target is aten.scalar_tensor.default:
            value = user.meta["val"]
            result = _add(graph, aten._to_copy.default, (scalar,), dtype=value.dtype, device=value.device)
        elif user.target is aten.rsub.Scalar:
            result = _add(graph, aten.sub.Tensor, (scalar, user.args[0]))
        else:
            result = _add(graph, _BINARY[user.target], (user.args[0], scalar))
    user.replace_all_uses_with(result)
    graph.erase_node(user)


def _is_operand(node: Any) -> bool:
    """Whether an operator gives a scalar tensor the type of this operand, as it does to a number."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, torch.Tensor):
        return False
    return value.dtype is torch.float64 or (value.dtype is torch.float32 and value.dim() > 0)


def _add(graph: fx.Graph, target: Any, arguments: tuple[Any, ...], **keywords: Any) -> fx.Node:
    node = graph.call_function(target, arguments, keywords)
    values = fx.node.map_arg(arguments, lambda used: used.meta["val"])
    mode = next(node.meta["val"] for node in node.all_input_nodes).fake_mode
    with mode:
        node.meta["val"] = target(*values, **keywords)
    return node
