"""What the nodes of a captured graph do, and how they are written; each private name has a test."""

from __future__ import annotations

import contextlib
import functools
import operator
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.attention
from torch import fx

from gearcache.ge_cache.private_torch import core as private_core
from gearcache.guards.evidence.names import module_of

#: The function that begins a transform in a captured graph -> the transform.
_BEGINNINGS = {
    "_vmap_increment_nesting": "torch.vmap",
    "_grad_increment_nesting": "torch.func.grad",
    "_jvp_increment_nesting": "torch.func.jvp",
    "_func_increment_nesting": "torch.func.functionalize",
}

#: Functions without tensors that recording honours: it runs them, or `ge_cache.graphs.static` replaces them.
_HONOURED = (
    torch._C._set_grad_enabled,
    torch.set_grad_enabled,
    torch._C._set_fwd_grad_enabled,
    torch.amp.autocast_mode._exit_autocast,
    torch.autograd.grad_mode._exit_inference_mode,
    torch.nn.attention._sdpa_kernel,
    torch._C._log_api_usage_once,  # `Module.__init__` calls it, for statistics of torch
)
#: How the names of functions begin that only answer.
_READERS = ("_get_", "get_", "_is_", "is_", "are_", "has_", "current_")
#: Modules of the functions between which transforms of `torch.func` run; those that need autograd are refused later.
_TRANSFORMS = ("torch._functorch", "torch._C._functorch", "torch._C._autograd", "torch.autograd.forward_ad")
#: Functions of `operator` that write nothing.
_OPERATORS = (
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow),
    *(operator.and_, operator.or_, operator.xor, operator.invert, operator.neg, operator.matmul, operator.getitem),
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
)
#: Methods of tensors that no operator is named after.
_CONVERSIONS = ("float", "half", "double", "bfloat16", "int", "long", "bool")
#: Parts of names of operators that may write to what their schema gives as an input: running means, weights.
_WRITING = ("norm", "embedding", "moving_avg")


def is_operator(node: fx.Node) -> bool:
    """Whether a captured node calls an operator of torch, or one that takes graphs."""
    return isinstance(
        node.target, (private_core.OpOverload, torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)
    )


def is_honoured(node: fx.Node) -> bool:
    """Whether recording does what a captured node says that takes no tensors: a reader, or one that returns nothing."""
    is_torch = module_of(node.target).partition(".")[0] == "torch"
    is_reader = is_torch and getattr(node.target, "__name__", "").startswith(_READERS)
    return is_reader or node.target in _HONOURED or module_of(node.target).startswith(_TRANSFORMS)


def chooses_attention(node: fx.Node) -> bool:
    """Whether a captured node allows some kernels of attention, at the begin or the end of `sdpa_kernel`."""
    return node.target is torch.nn.attention._sdpa_kernel


def enters_autocast(node: fx.Node) -> bool:
    """Whether a captured node begins a region of autocast: (device, dtype, on or off, cached)."""
    return getattr(node.target, "__name__", "") == "_enter_autocast"


def is_grad_switch(node: fx.Node) -> bool:
    """Return whether a captured node only turns autograd on or off, which has no effect in a graph without it."""
    return node.target in (torch._C._set_grad_enabled, torch.set_grad_enabled) and not node.users


def enters_inference_mode(node: fx.Node) -> bool:
    """Whether a captured node begins a region of inference mode, on or off by its argument."""
    return node.target is torch.autograd.grad_mode._enter_inference_mode


def leaves_inference_mode(node: fx.Node) -> bool:
    """Return whether a captured node ends the innermost region."""
    return node.target is torch.autograd.grad_mode._exit_inference_mode


def reads_data(node: fx.Node) -> bool:
    """Whether a captured node is `tensor.data`."""
    return node.target is torch._C._autograd._get_data_attr  # type: ignore[attr-defined]


def assigns_data(node: fx.Node) -> bool:
    """Whether a captured node gives a tensor other memory, as `tensor.data = other` does."""
    # torch 2.14 has an operator for it.
    return node.target in (torch.Tensor.set_, "set_") or str(node.target).startswith("aten.shallow_copy_data_")


def is_random_operator(node: fx.Node) -> bool:
    """Whether a node calls an operator that draws random numbers."""
    return isinstance(node.target, private_core.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def draws(node: fx.Node) -> bool:
    """Whether a node draws random numbers: by the operator of its name, as captured graphs call public functions."""
    return is_random_operator(node) or any(torch.Tag.nondeterministic_seeded in each.tags for each in _overloads(node))


def only_computes(node: fx.Node) -> bool:
    """Whether a captured node is known to have no effect but its result, and to draw no random numbers."""
    if node.op == "get_attr" or node.target in _OPERATORS or (node.op == "call_method" and node.target in _CONVERSIONS):
        return True
    if any(argument is True for argument in node.args) or {"out", "inplace"} & node.kwargs.keys():
        return False  # `relu(x, True)` writes to `x`
    overloads = [each for each in _overloads(node) if not each._overloadname.endswith("out")]
    return bool(overloads) and not any(
        each._schema.is_mutable
        or torch.Tag.nondeterministic_seeded in each.tags
        or any(part in each._schema.name for part in _WRITING)
        for each in overloads
    )


def _overloads(node: fx.Node) -> tuple[private_core.OpOverload, ...]:
    """Return torch's operators that a captured node calls, or whose name a method or a function of torch has."""
    if isinstance(node.target, (private_core.OpOverload, torch._ops.OpOverloadPacket)):
        is_torch = str(node.target).startswith("aten.")
        return _named(str(node.target).split(".")[1]) if is_torch else ()
    if node.op == "call_method":
        return _named(str(node.target))
    function: Any = node.target
    is_function = isinstance(function, (types.FunctionType, types.BuiltinFunctionType))
    return _named(function.__name__) if is_function and module_of(function).partition(".")[0] == "torch" else ()


@functools.cache
def _named(name: str) -> tuple[private_core.OpOverload, ...]:
    packet = getattr(torch.ops.aten, name, None)
    return tuple(getattr(packet, each) for each in packet.overloads()) if packet is not None else ()


def saves_memory_for_backward(node: fx.Node) -> bool:
    """Whether a captured node is `torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`."""
    return node.target is torch.ops.higher_order.tag_activation_checkpoint


def transforms_of(graph: fx.Graph) -> set[str]:
    """Return the transforms of `torch.func` that a captured graph uses, by their public names."""
    names = {getattr(node.target, "__name__", "") for node in graph.nodes if node.op == "call_function"}
    return {_BEGINNINGS[name] for name in names & _BEGINNINGS.keys()}


def name_powers(graph: fx.Graph) -> None:
    """Call `pow` for powers of negative numbers: torch 2.13 to 2.15 writes `-2 ** x` for `(-2) ** x`.

    Graphs within a graph are refused elsewhere.
    """
    for node in graph.nodes:
        is_power = node.op == "call_function" and node.target in (operator.pow, operator.ipow)
        if is_power and isinstance(node.args[0], (int, float)) and str(node.args[0]).startswith("-"):
            node.target = pow


@contextlib.contextmanager
def kernels_restored_after_a_failure() -> Iterator[None]:
    """Restore which kernels of attention are allowed if the block fails: else a region in it has done so by itself."""
    kernels = torch.nn.attention._cur_sdpa_kernel_backends()
    order = torch._C._get_sdp_priority_order()
    try:
        yield
    except BaseException:
        torch.nn.attention._sdpa_kernel(kernels)
        torch._C._set_sdp_priority_order(order)
        raise


def argument_of(variable: Any, tx: Any) -> Any:
    """Return the source of the tensor from before the call that a result is, as `x.contiguous()` may be `x`; or None.

    `variable` is Dynamo's of the result.
    """
    fake = variable.proxy.node.meta.get("example_value")
    return next((tracked.source for tracked in tx.output.tracked_fakes if tracked.fake is fake), None)
