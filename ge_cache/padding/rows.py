"""Padding rules of operators: the list of rules for `ge_cache.padding.proof`.

A rule returns the extents of the results, or raises `Dependent` where a real position would read filling. An unlisted
operator is refused as soon as it reads filling, so the list may be incomplete but not wrong.
"""

from __future__ import annotations

from typing import Any

import torch
from msgspec.structs import replace

from gearcache.ge_cache.padding.extents import ONE, Dim, Extent, broadcast, has_padding
from gearcache.ge_cache.padding.fills import LOWEST, doubtful, elementwise_fills, require_neutral
from gearcache.ge_cache.padding.step import Dependent, PaddingRules, Step, as_list

RULES = PaddingRules()
rule = RULES.of
_DIVISIONS = ("div", "remainder", "fmod", "floor_divide")
#: Arguments that may contain a padded size: they only determine the size of a result.
SIZE_ARGUMENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "expand", "broadcast_to"), ("size", "shape")),
    **dict.fromkeys(("zeros", "ones", "empty", "full", "new_zeros", "new_ones", "new_empty", "new_full"), ("size",)),
    "arange": ("end",),
    "slice": ("end",),
    "unflatten": ("sizes",),
}


@rule("masked_fill_", "to", "_to_copy", "type_as", "contiguous", "clone", "where", "__and__", "__or__", "copy_")
@rule("fill_", "zero_", "alias", "detach", "lift_fresh", "lift_fresh_copy", "dropout", "hardswish", "hardtanh", "_conj")
@rule("feature_dropout", "mish", "relu6", "threshold")
@rule("zeros_like", "ones_like", "empty_like", "full_like", "float", "masked_fill")
def elementwise(step: Step) -> Extent:
    """Every position of the result reads the same position of the tensors."""
    packet = step.name.partition(".")[0]
    _require_divisor(step)
    nodes = list(step.tensors().values())
    if packet in ("to", "type_as"):  # the other tensor only gives its dtype
        nodes = nodes[:1]
    extents = [step.proof.value(node) for node in nodes]
    sizes = [step.proof.sizes(node.meta["val"]) for node in nodes]
    dims = broadcast([extent.dims for extent in extents], sizes)
    if dims is None:
        raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    may_alias = bool(step.aliased) or packet in ("type_as", "dropout", "feature_dropout", "float")
    result = Extent(dims, None, extents[0].is_writable if may_alias else True)
    if _keeps_numbers(step):
        result = replace(result, bound=extents[0].bound, counted=extents[0].counted)
    fills, may_be_nan = elementwise_fills(step, dims)
    return replace(result, fills=fills, is_doubtful=may_be_nan and doubtful(step))


def _require_divisor(step: Step) -> None:
    """Refuse to divide whole numbers by filling that may be 0, which is an error."""
    result, divisor = step.node.meta["val"], step.value("other")
    if step.packet not in _DIVISIONS or result.is_floating_point() or not isinstance(divisor, Extent):
        return
    for index, dim in enumerate(divisor.dims):
        if not divisor.fills.get(index):
            step.require_unpadded("divides whole numbers by filling, which may be 0, of", dim)


def _keeps_numbers(step: Step) -> bool:
    """Return whether row numbers stay unchanged."""
    if step.node.meta["val"].dtype not in (torch.int32, torch.int64):
        return False
    adds_nothing = step.packet in ("add", "sub") and step.given.get("other") == 0
    return adds_nothing or step.packet in ("to", "_to_copy", "contiguous", "clone", "alias", "detach", "lift_fresh")


def _dims_of(step: Step, rank: int) -> list[int]:
    dim = step.value("dim")
    if dim is None or dim == []:
        return list(range(rank))
    return [item % rank for item in (dim if isinstance(dim, list) else [dim])] if rank else []


@rule("sum", "mean", "amax", "amin", "max", "min", "prod", "any", "all", "var", "std", "var_mean", "std_mean", "norm")
@rule("linalg_vector_norm", "logsumexp", "argmax", "argmin", "count_nonzero", "nansum", "median")
def reduction(step: Step) -> Extent | list[Extent]:
    """Reduced dims must have no filling, unless its value is neutral to the operator."""
    if "other" in step.given:
        return elementwise(step)
    source = step.extent("self")
    reduced = _dims_of(step, len(source.dims))
    require_neutral(step, source, reduced, "reduces over")
    result_dims = [ONE if index in reduced else dim for index, dim in enumerate(source.dims)]
    if not step.given.get("keepdim", False):
        result_dims = [dim for index, dim in enumerate(result_dims) if index not in reduced]
    results = [Extent(tuple(result_dims)) for _ in step.result_sizes()]
    return results if isinstance(step.node.meta["val"], (list, tuple)) else results[0]


@rule(
    "softmax", "_softmax", "log_softmax", "_log_softmax", "sort", "topk", "argsort", "cumsum", "cumprod", "glu", "flip"
)
@rule("roll", "logcumsumexp")
def along(step: Step) -> Extent | list[Extent]:
    """The result keeps the rank; positions along `dim` depend on each other (a running sum only on earlier ones)."""
    source = step.extent("self")
    name = "dims" if "dims" in step.given else "dim"
    argument = step.value(name)
    dims = [item % len(source.dims) for item in (argument if isinstance(argument, list) else [argument])]
    if name == "dims" and not dims:
        dims = list(range(len(source.dims)))
    running = step.name.startswith(("cumsum", "cumprod", "logcumsumexp")) and len(source.dims[dims[0]]) == 1
    # Filling with a score of -inf gets no weight; a row of only such scores is NaN without filling as well.
    is_masked = step.packet in ("softmax", "_softmax") and source.fills.get(dims[0]) == LOWEST
    if not running and not (is_masked and len(source.dims[dims[0]]) == 1):
        is_softmax = "softmax" in step.packet
        effect = (
            "gives filling a weight, its scores not being known to be -inf, along"
            if is_softmax
            else "combines positions of"
        )
        step.require_unpadded(effect, *(source.dims[dim] for dim in dims))
    results = []
    for sizes in step.result_sizes():
        result_dims = list(source.dims)
        for dim in dims:
            result_dims[dim] = step.proof.unpadded_dims(sizes)[dim]
        fills = {dims[0]: 0.0} if is_masked else {}
        results.append(Extent(tuple(result_dims), fills=fills, is_doubtful=is_masked and doubtful(step)))
    return results if isinstance(step.node.meta["val"], (list, tuple)) else results[0]


@rule("scaled_dot_product_attention")
def attention(step: Step) -> Extent:
    """Keys must have no filling, unless a mask or causality hides it from the queries."""
    query, key, value = (step.extent(name) for name in ("query", "key", "value"))
    step.require_unpadded("sums over", query.dims[-1], key.dims[-1], value.dims[-1])
    if step.value("enable_gqa"):
        step.require_unpadded("groups the heads of", query.dims[-3], key.dims[-3], value.dims[-3])
        key, value = (item.with_dims([*item.dims[:-3], query.dims[-3], *item.dims[-2:]]) for item in (key, value))
    is_causal = step.value("is_causal") and query.dims[-2] == key.dims[-2] and len(key.dims[-2]) == 1
    mask = step.value("attn_mask")
    is_masked = isinstance(mask, Extent) and _keeps_out(mask, key.dims[-2])
    if not is_causal and not is_masked:
        effect = "attends over" if mask is None else "attends, with a mask that is not known to be False or -inf, over"
        step.require_unpadded(effect, key.dims[-2], value.dims[-2])
    if key.dims[-2] != value.dims[-2]:
        raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    rows = [query.dims[:-2], key.dims[:-2], value.dims[:-2]]
    if isinstance(mask, Extent):
        padded = [ONE] * (2 - len(mask.dims)) + list(mask.dims)
        if padded[-2] not in (ONE, query.dims[-2]) or padded[-1] not in (ONE, key.dims[-2]):
            raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
        rows.append(tuple(padded[:-2]))
    batches = broadcast(rows, [[0 if dim else 1 for dim in batch] for batch in rows])
    if batches is None:
        raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    may_be_nan = is_masked and has_padding(key.dims[-2])
    return Extent((*batches, query.dims[-2], value.dims[-1]), is_doubtful=may_be_nan and doubtful(step))


def _keeps_out(mask: Extent, keys: Dim) -> bool:
    """Whether a mask is False (of bools), or -inf, wherever a key is filling."""
    fill = mask.fills.get(len(mask.dims) - 1)
    return mask.dims[-1:] == (keys,) and (fill is False or fill == LOWEST)


@rule("layer_norm", "rms_norm")
def last_dims_norm(step: Step) -> Extent:
    """The normalised dims must have no filling."""
    source = step.extent("input")
    step.require_unpadded("normalises over", *source.dims[-len(step.value("normalized_shape")) :])
    return Extent(source.dims)


@rule("conv1d", "conv2d", "conv3d", "convolution", "group_norm", "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d")
@rule("avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "batch_norm", "upsample_nearest2d")
def batched(step: Step) -> Extent:
    """Only dim 0 may have filling: each of its rows is an example of its own."""
    if step.name.startswith("batch_norm") and step.value("training"):
        raise Dependent(f"`aten.batch_norm` in training mode averages over {step.proof.label}")
    source = step.extent("input" if "input" in step.given else "self")
    if step.name.startswith("conv") and len(source.dims) != len(step.extent("weight").dims):
        raise Dependent(f"`aten.{step.name}` without a batch is not known to keep rows apart along {step.proof.label}")
    other_dims = [
        dim for name, node in step.tensors().items() if name not in ("input", "self") for dim in _of(step, node)
    ]
    step.require_unpadded("combines positions of", *source.dims[1:], *other_dims)
    return Extent((source.dims[0], *step.fresh().dims[1:]))


@rule("lstm", "gru", "rnn_tanh", "rnn_relu")
def recurrent(step: Step) -> list[Extent]:
    """Examples of a batch do not interact; the positions of a sequence do."""
    source, batch = step.extent("input"), 0 if step.value("batch_first") else 1
    states = [extent.dims for extent in as_list(step.value("hx"))]
    weights = [dim for extent in step.value("params") for dim in extent.dims]
    other_dims = [dim for dims in states for dim in (dims[0], dims[2])] + [
        *source.dims[:batch],
        *source.dims[batch + 1 :],
    ]
    step.require_unpadded("combines positions of", *other_dims, *weights)
    if any(dims[1] != source.dims[batch] for dims in states):
        raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    output, *last_states = (list(step.proof.unpadded_dims(sizes)) for sizes in step.result_sizes())
    for dims, index in [(output, batch), *((dims, 1) for dims in last_states)]:
        dims[index] = source.dims[batch]
    return [Extent(tuple(dims)) for dims in (output, *last_states)]


def _of(step: Step, node: Any) -> tuple[Dim, ...]:
    dims: tuple[Dim, ...] = step.proof.value(node).dims
    return dims


@rule("embedding")
def embedding(step: Step) -> Extent:
    """The table must have no filling."""
    step.require_unpadded("looks up in", *step.extent("weight").dims)
    return Extent((*step.extent("indices").dims, step.extent("weight").dims[1]))
