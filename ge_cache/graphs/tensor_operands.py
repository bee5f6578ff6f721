"""How the operators of a graph that is compiled take numbers that vary, so that no digit is lost.

Inductor, also within `torch.compile`, rounds a float that it reads from a tensor (`x * t.item()`) to 32 bits, and each
number to the 16 bits of a tensor that it is combined with. Eager mode multiplies and divides 16 bits by a number in 32,
and rounds the result. It rounds a number that it adds first; Inductor does not always, nor with a number in the code.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

aten = torch.ops.aten
_READS = (aten.item.default, aten._local_scalar_dense.default)
_WIDE = [getattr(aten, name).Tensor for name in ("mul", "div", "mul_", "div_")]
_ADDED = [getattr(aten, name).Tensor for name in ("add", "sub", "add_", "sub_")]
_COMPARED = {getattr(aten, name).Scalar: getattr(aten, name).Tensor for name in ("eq", "ne", "lt", "le", "gt", "ge")}
#: Operators with a number as second operand -> the same with a tensor.
_BINARY = {**{target: target for target in (*_WIDE, *_ADDED)}, **_COMPARED}
_NARROW = (torch.bfloat16, torch.float16)


def takes_tensor(user: fx.Node, number: fx.Node) -> bool:
    """Whether `keep_tensor_operands` gives an operator the tensor of a float that it takes."""
    if user.target is aten.scalar_tensor.default:
        return True
    return _is_operand(user, number, (*_NARROW, torch.float32, torch.float64))


def takes_int(user: fx.Node, number: fx.Node) -> bool:
    """Whether `keep_tensor_operands` lets an operator of 16 bits take an int as eager mode does."""
    return _is_operand(user, number, _NARROW)


def keep_tensor_operands(graph: fx.Graph) -> None:
    """Rewrite a recorded graph, whose nodes have fake values."""
    for number in list(graph.nodes):
        if number.target in _READS and number.args[0].meta["val"].dtype.is_floating_point:
            if users := [user for user in number.users if takes_tensor(user, number)]:
                taken = _taken(graph, number)
                for user in users:
                    _rewrite(graph, taken, user)
            if not number.users:
                graph.erase_node(number)
        elif isinstance(number.meta.get("val"), torch.SymInt):
            for user in [user for user in number.users if takes_int(user, number)]:
                _rewrite(graph, number, user)


def take_plain_floats(graph: fx.Graph, first: int, count: int) -> None:
    """Let a recorded graph that is not compiled take its floats as Python's: placeholders from `first` on."""
    for placeholder in graph.find_nodes(op="placeholder")[first : first + count]:
        for read in list(placeholder.users):
            read.replace_all_uses_with(placeholder)
            graph.erase_node(read)


def _is_operand(user: fx.Node, number: fx.Node, dtypes: tuple[torch.dtype, ...]) -> bool:
    """Whether a number is the second operand of a tensor that has one of the types."""
    given: Any = user.args
    if user.kwargs or len(given) != 2 or given[1] is not number or not isinstance(given[0], fx.Node):
        return False
    value = given[0].meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype not in dtypes:
        return False
    if user.target in _COMPARED:  # with a number in the code Inductor rounds it first, with a tensor it may not
        return value.dtype not in _NARROW
    return user.target in _BINARY or user.target is aten.rsub.Scalar


def _taken(graph: fx.Graph, read: fx.Node) -> fx.Node:
    """Return a copy of the tensor from which a float is read, made there: the tensor may be written before a use."""
    tensor: Any = read.args[0]
    value = tensor.meta["val"]
    with graph.inserting_before(read):
        scalar = _add(graph, value, aten.reshape.default, (tensor, []))
        return _add(graph, value, aten._to_copy.default, (scalar,))


def _rewrite(graph: fx.Graph, number: fx.Node, user: fx.Node) -> None:
    """Let an operator take a number as a tensor: a float from the tensor `number`, or a symbolic int."""
    with graph.inserting_before(user):
        if user.target is aten.scalar_tensor.default:
            value = user.meta["val"]
            result = _add(graph, value, aten._to_copy.default, (number,), dtype=value.dtype, device=value.device)
        else:
            result = _operation(graph, number, user)
    user.replace_all_uses_with(result)
    graph.erase_node(user)


def _operation(graph: fx.Graph, number: fx.Node, user: fx.Node) -> fx.Node:
    operand: Any = user.args[0]
    value = operand.meta["val"]
    if value.dtype in _NARROW and user.target in _WIDE:
        wide = _add(graph, value, aten._to_copy.default, (operand,), dtype=torch.float32)
        functional = aten.mul.Tensor if user.target in (aten.mul.Tensor, aten.mul_.Tensor) else aten.div.Tensor
        computed = _add(graph, value, functional, (wide, _scalar(graph, number, wide.meta["val"])))
        if user.target is functional:
            return _add(graph, value, aten._to_copy.default, (computed,), dtype=value.dtype)
        return _add(graph, value, aten.copy_.default, (operand, computed))
    scalar = _scalar(graph, number, value)
    if user.target is aten.rsub.Scalar:
        return _add(graph, value, aten.sub.Tensor, (scalar, operand))
    return _add(graph, value, _BINARY[user.target], (operand, scalar))


def _scalar(graph: fx.Graph, number: fx.Node, like: Any) -> fx.Node:
    """Return a tensor of a number, of the type of another tensor."""
    if isinstance(number.meta["val"], torch.Tensor):
        return _add(graph, like, aten._to_copy.default, (number,), dtype=like.dtype)
    return _add(graph, like, aten.scalar_tensor.default, (number,), dtype=like.dtype)


def _add(graph: fx.Graph, like: Any, target: Any, arguments: tuple[Any, ...], **keywords: Any) -> fx.Node:
    node = graph.call_function(target, arguments, keywords)
    values = fx.node.map_arg(arguments, lambda used: used.meta["val"])
    with like.fake_mode:
        node.meta["val"] = target(*values, **keywords)
    return node
