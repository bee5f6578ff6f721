"""Track the values of filling, so that a mask can keep it out of sums.

The filling of an input is given by `pad_values`, and operators without rounding make it known again: `mask == 0` is
True there, `scores.masked_fill(mask == 0, -inf)` is -inf, its softmax is 0. A sum may then run over filling: 0 times a
number is 0. Where that number is infinite or NaN (such as a layer's result for the filling of `ids`), it is NaN
instead. A tensor that may have such a NaN is *doubtful*; only operators that propagate NaN may read it, and the call
looks for NaN in the results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from gearcache.ge_cache.padding.extents import Dim, Extent, has_padding
from gearcache.ge_cache.padding.step import Dependent, Step, is_list

LOWEST = -math.inf
#: Operators that keep numbers unchanged, except for the dtype.
_COPYING = {"to", "_to_copy", "type_as", "clone", "contiguous", "alias", "detach", "lift_fresh", "float", "dropout"}
_COPYING |= {"feature_dropout"}
#: Operators that compute small whole numbers without rounding.
_EXACT = (
    {"eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "logical_xor", "bitwise_not"}
    | {"bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "neg", "abs", "add", "sub", "rsub", "mul"}
    | {"div", "clamp", "clamp_min", "clamp_max", "minimum", "maximum"}
)
_CONSTANT = {"ones_like", "zeros_like", "full_like"}
#: Values that a sum may include without an effect, by operator.
NEUTRAL: dict[str, Any] = {
    **dict.fromkeys(("sum", "nansum", "count_nonzero", "linalg_vector_norm", "any"), 0),
    **dict.fromkeys(("all", "prod"), 1),
    **dict.fromkeys(("amax", "logsumexp"), LOWEST),
    "amin": math.inf,
}
#: Operators that give NaN, or an unaffected value, wherever they read a NaN (attention: if its rule allows it).
_CARRY_NAN = (
    {"add", "sub", "rsub", "mul", "div", "neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "square", "pow"}
    | {"tanh", "sigmoid", "silu", "gelu", "relu", "leaky_relu", "elu", "softplus", "mish", "sin", "cos", "erf"}
    | {"clamp", "clamp_min", "clamp_max", "minimum", "maximum", "where", "masked_fill", "dropout", "softmax", "cumsum"}
    | {"_softmax", "log_softmax", "_log_softmax", "linear", "mm", "bmm", "matmul", "addmm", "baddbmm", "einsum"}
    | {"scaled_dot_product_attention", "layer_norm", "rms_norm", "sum", "mean", "amax", "amin", "prod", "var", "std"}
    | {"linalg_vector_norm", "logsumexp", "to", "_to_copy", "type_as", "contiguous", "clone", "alias", "detach"}
    | {"float", "view", "reshape", "_unsafe_view", "flatten", "unflatten", "permute", "transpose", "t", "unsqueeze"}
    | {"squeeze", "movedim", "swapaxes", "swapdims", "expand", "expand_as", "broadcast_to", "slice", "select", "split"}
    | {"split_with_sizes", "chunk", "unbind", "tensor_split", "cat", "concat", "stack", "constant_pad_nd", "pad"}
    | {"repeat", "repeat_interleave", "tril", "triu", "index", "index_select", "gather"}
)


class Unknown:
    """Stands for a value that may be anything."""


def require_certain(step: Step) -> None:
    """Refuse an operator that could turn NaN into a number, which would hide it."""
    packet = step.packet
    values = step.node.meta["val"]
    results = [item for item in (values if is_list(values) else [values]) if isinstance(item, torch.Tensor)]
    counts_zeros = packet == "linalg_vector_norm" and step.value("ord") == 0
    may_be_one = packet == "pow" and not (step.name == "pow.Tensor_Scalar" and step.value("exponent") != 0)
    carries = packet in _CARRY_NAN and all(item.is_floating_point() for item in results)
    if packet == "scaled_dot_product_attention":
        _require_whole_rows(step)
    if not carries or counts_zeros or may_be_one:
        raise Dependent(f"`aten.{step.name}` could hide what masked filling of {step.proof.label} does if it is NaN")


def _require_whole_rows(step: Step) -> None:
    """Refuse attention unless a NaN in a query or key is also in its value: kernels turn a row of NaN scores into 0."""
    sources = [step.extent(name) for name in ("query", "key", "value")]
    origins = [item.origin for item in sources]
    mask = step.value("attn_mask")
    if not origins[0] or origins.count(origins[0]) < 3 or (isinstance(mask, Extent) and mask.is_doubtful):
        raise Dependent(
            f"`aten.{step.name}` could hide what masked filling of {step.proof.label} does if it is NaN: query, key "
            "and value are not linear layers of one tensor"
        )


def doubtful(step: Step) -> bool:
    """Return True for a result that a NaN in filling turns into NaN, as on a CPU; refuse other devices."""
    if step.node.meta["val"].device.type != "cpu":
        raise Dependent(f"`aten.{step.name}` masks filling of {step.proof.label}, which is understood on a CPU only")
    return True


def require_neutral(step: Step, source: Extent, dims: Sequence[int], what: str) -> None:
    """Refuse an operator that reads filling, unless it is known to have no effect."""
    neutral = NEUTRAL.get(step.packet, Unknown)
    if step.packet == "linalg_vector_norm" and step.value("ord") not in (1, 2):
        neutral = Unknown
    for dim in dims:
        if has_padding(source.dims[dim]) and source.fills.get(dim, math.nan) != neutral:
            step.require_unpadded(what, source.dims[dim])


def constant_fills(dims: Sequence[Dim], value: Any) -> dict[int, Any]:
    """Return the fills of a tensor that has one value at every filling position."""
    return {index: value for index, dim in enumerate(dims) if has_padding(dim)} if is_exact(value) else {}


def held(value: Any, dtype: torch.dtype) -> Any:
    """Return a number as a tensor of this dtype stores it; `Unknown` where it would change."""
    if not is_exact(value) or (isinstance(value, int) and not 0 <= value <= 127 and dtype != torch.int64):
        return Unknown
    if dtype == torch.bool:
        return bool(value) if value in (0, 1) else Unknown
    if dtype.is_floating_point:
        return float(value)
    return int(value) if not math.isinf(value) and value == int(value) else Unknown


def elementwise_fills(step: Step, dims: Sequence[Dim]) -> tuple[dict[int, Any], bool]:
    """Return the fills of an elementwise result, and whether they may be NaN instead."""
    fills: dict[int, Any] = {}
    is_doubtful = False
    for dim in (index for index, result_dim in enumerate(dims) if has_padding(result_dim)):
        operands = {name: _operand(step, node, dim - len(dims)) for name, node in step.tensors().items()}
        value, may_be_nan = _value(step, operands)
        if value is not Unknown:
            fills[dim] = value
            is_doubtful |= may_be_nan
    return fills, is_doubtful


def _operand(step: Step, node: fx.Node, dim: int) -> Any:
    """Return the value of an operand at filling along a dim of the result, counted from the end."""
    extent, sizes = step.proof.value(node), step.proof.sizes(node.meta["val"])
    if -dim > len(sizes) or sizes[dim] == 1:
        return Unknown
    return extent.fills.get(len(sizes) + dim, Unknown)


def _value(step: Step, operands: dict[str, Any]) -> tuple[Any, bool]:
    """Return the value of a position, and whether it may be NaN instead, given the operands' values there."""
    packet, dtype = step.packet, step.node.meta["val"].dtype
    operand = _selected_operand(step, operands)
    if operand is not Unknown:
        return held(operand, dtype), False
    if packet in _CONSTANT or Unknown not in operands.values():
        return _computed(step, operands), False
    known_values = [value for value in operands.values() if value is not Unknown]
    if packet == "mul" and 0 in known_values:
        return _false(dtype), dtype.is_floating_point or dtype.is_complex
    if packet in ("bitwise_and", "__and__", "logical_and") and 0 in known_values:
        return _false(dtype), False
    if packet in ("bitwise_or", "__or__", "logical_or") and dtype == torch.bool and any(known_values):
        return True, False
    if packet == "add" and LOWEST in known_values and step.given.get("alpha", 1) == 1 and dtype.is_floating_point:
        return LOWEST, True
    return Unknown, False


def _false(dtype: torch.dtype) -> Any:
    return False if dtype == torch.bool else 0.0 if dtype.is_floating_point else 0


def _selected_operand(step: Step, operands: dict[str, Any]) -> Any:
    """Return the operand that a condition chooses."""
    if step.packet == "where" and operands.get("condition", Unknown) is not Unknown:
        name = "self" if operands["condition"] else "other"
    elif step.packet == "masked_fill" and operands["mask"] is not Unknown:
        name = "value" if operands["mask"] else "self"
    else:
        return Unknown
    return operands[name] if name in operands else step.given.get(name, Unknown)


def _computed(step: Step, operands: dict[str, Any]) -> Any:
    """Run the operator itself on one position."""
    if step.packet not in _COPYING | _EXACT | _CONSTANT:
        return Unknown
    nodes = [value for value in step.given.values() if isinstance(value, fx.Node)]
    if any(not isinstance(node.meta.get("val"), torch.Tensor) for node in nodes):
        return Unknown
    scalars = [value for value in step.given.values() if isinstance(value, (int, float))]
    if step.packet in _EXACT and not all(is_exact(value) for value in scalars):
        return Unknown
    dtype = step.node.meta["val"].dtype
    may_overflow = any(isinstance(value, float) and not abs(value) <= 127 for value in operands.values())
    if may_overflow and dtype != torch.bool and not dtype.is_floating_point:
        return Unknown

    def at_one_position(name: str, value: Any) -> Any:
        if isinstance(value, fx.Node):
            fill = operands.get(name, Unknown)
            number = 0 if fill is Unknown else fill  # unknown only where the operator reads no more than its size
            return torch.full((), number, dtype=value.meta["val"].dtype, device="cpu")
        return torch.device("cpu") if isinstance(value, torch.device) else value

    arguments = {name: at_one_position(name, value) for name, value in step.given.items()}
    schema_arguments = [item for item in step.schema.arguments if item.name in arguments]
    positional = [arguments[item.name] for item in schema_arguments if not item.kwarg_only]
    keywords = {item.name: arguments[item.name] for item in schema_arguments if item.kwarg_only}
    try:
        result = step.node.target(*positional, **keywords)  # type: ignore[operator]
    except (RuntimeError, IndexError, TypeError, ValueError):  # the operator needs dims that one position lacks
        return Unknown
    if not isinstance(result, torch.Tensor) or result.dtype != dtype:
        return Unknown
    value = result.item()
    if isinstance(value, int):
        return value if dtype in (torch.bool, torch.int64) or abs(value) <= 127 else Unknown
    overflows = math.inf in map(_size, [value]) and math.inf not in map(_size, [*operands.values(), *scalars])
    return value if is_exact(value) and not overflows else Unknown


def _size(value: Any) -> Any:
    return abs(value) if isinstance(value, (int, float)) else None


def is_exact(value: Any) -> bool:
    """Return whether every kernel computes with exactly this number: some kernels round others."""
    if isinstance(value, float):
        return math.isinf(value) or ((2 * value).is_integer() and abs(value) <= 128)
    return isinstance(value, (bool, int))
