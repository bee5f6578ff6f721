"""What operators do to padded rows: the list behind `ge_cache.padding.proof`.

A rule returns the extents of the results, or raises `Dependent` where a real position would read filling. An operator
that is not listed is refused as soon as it sees filling, so the list may be incomplete but not wrong.
"""

from __future__ import annotations

from typing import Any

from gearcache.ge_cache.padding.extents import ONE, Dim, Extent, broadcast
from gearcache.ge_cache.padding.step import Dependent, Rules, Step

RULES = Rules()
rule = RULES.of
#: Arguments in which a padded size may stand: they only say how large a result is.
SIZE_ARGUMENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "expand", "broadcast_to"), ("size", "shape")),
    **dict.fromkeys(("zeros", "ones", "empty", "full", "new_zeros", "new_ones", "new_empty", "new_full"), ("size",)),
    "arange": ("end",),
    "slice": ("end",),
    "unflatten": ("sizes",),
}


@rule("masked_fill_", "to", "_to_copy", "type_as", "contiguous", "clone", "where", "__and__", "__or__", "copy_")
@rule("fill_", "zero_", "alias", "detach", "lift_fresh", "lift_fresh_copy", "dropout", "hardswish", "hardtanh", "_conj")
@rule("zeros_like", "ones_like", "empty_like", "full_like", "float", "masked_fill")
def elementwise(step: Step) -> Extent:
    """Every position of the result reads the same position of the tensors."""
    if step.name.startswith("dropout") and step.value("train") and step.value("p") != 0:
        raise Dependent("`aten.dropout` draws random numbers")
    packet = step.name.partition(".")[0]
    nodes = list(step.tensors().values())
    if packet in ("to", "type_as"):  # the other tensor only gives its dtype
        nodes = nodes[:1]
    extents = [step.proof.value(node) for node in nodes]
    sizes = [step.proof.sizes(node.meta["val"]) for node in nodes]
    dims = broadcast([extent.dims for extent in extents], sizes)
    if dims is None:
        raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    keeps = packet in ("to", "_to_copy", "contiguous", "clone", "alias", "detach", "lift_fresh")
    may_alias = bool(step.aliased) or packet in ("type_as", "dropout", "float")
    is_writable = extents[0].is_writable if may_alias else True
    return Extent(dims, extents[0].bound if keeps else None, is_writable)


def _dims_of(step: Step, rank: int) -> list[int]:
    dim = step.value("dim")
    if dim is None or dim == []:
        return list(range(rank))
    return [item % rank for item in (dim if isinstance(dim, list) else [dim])] if rank else []


@rule("sum", "mean", "amax", "amin", "max", "min", "prod", "any", "all", "var", "std", "var_mean", "std_mean", "norm")
@rule("linalg_vector_norm", "logsumexp", "argmax", "argmin", "count_nonzero", "nansum", "median")
def reduction(step: Step) -> Extent | list[Extent]:
    """Dims that are reduced must hold no filling."""
    if "other" in step.given:
        return elementwise(step)
    source = step.extent("self")
    reduced = _dims_of(step, len(source.dims))
    step.require_unpadded("reduces over", *(source.dims[dim] for dim in reduced))
    kept = [ONE if index in reduced else dim for index, dim in enumerate(source.dims)]
    if not step.given.get("keepdim", False):
        kept = [dim for index, dim in enumerate(kept) if index not in reduced]
    results = [Extent(tuple(kept)) for _ in step.result_sizes()]
    return results if isinstance(step.node.meta["val"], (list, tuple)) else results[0]


@rule(
    "softmax", "_softmax", "log_softmax", "_log_softmax", "sort", "topk", "argsort", "cumsum", "cumprod", "glu", "flip"
)
@rule("roll", "logcumsumexp")
def along(step: Step) -> Extent | list[Extent]:
    """The result keeps the rank; positions along `dim` depend on each other (a running sum only on earlier ones)."""
    source = step.extent("self")
    name = "dims" if "dims" in step.given else "dim"
    given = step.value(name)
    dims = [item % len(source.dims) for item in (given if isinstance(given, list) else [given])]
    if name == "dims" and not dims:
        dims = list(range(len(source.dims)))
    running = step.name.startswith(("cumsum", "cumprod", "logcumsumexp")) and len(source.dims[dims[0]]) == 1
    if not running:
        step.require_unpadded("combines positions of", *(source.dims[dim] for dim in dims))
    results = []
    for sizes in step.result_sizes():
        row = list(source.dims)
        for dim in dims:
            row[dim] = step.proof.unpadded_dims(sizes)[dim]
        results.append(Extent(tuple(row)))
    return results if isinstance(step.node.meta["val"], (list, tuple)) else results[0]


def _product(step: Step, left: Extent, right: Extent) -> tuple[Dim, ...]:
    """Return the dims of a matrix product of tensors of at least two dims."""
    step.require_unpadded("sums over", left.dims[-1], right.dims[-2])
    batches = broadcast(
        [left.dims[:-2], right.dims[:-2]],
        [[0 if dim else 1 for dim in row.dims[:-2]] for row in (left, right)],
    )
    if batches is None:
        raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    return (*batches, left.dims[-2], right.dims[-1])


@rule("mm", "bmm", "matmul")
def product(step: Step) -> Extent:
    """A matrix product; the summed dim must hold no filling."""
    names = ("self", "other") if "other" in step.given else ("self", "mat2")
    left, right = (step.extent(name) for name in names)
    rows, columns = len(left.dims) == 1, len(right.dims) == 1
    left = left.with_dims([ONE, *left.dims]) if rows else left
    right = right.with_dims([*right.dims, ONE]) if columns else right
    dims = list(_product(step, left, right))
    if columns:
        dims.pop()
    if rows:
        dims.pop(-1 if columns else -2)
    return Extent(tuple(dims))


@rule("addmm", "baddbmm")
def sum_and_product(step: Step) -> Extent:
    """A matrix product with something added."""
    first, second = ("mat1", "mat2") if "mat1" in step.given else ("batch1", "batch2")
    dims = _product(step, step.extent(first), step.extent(second))
    added = step.extent("self")
    joined = broadcast([dims, added.dims], [[0 if dim else 1 for dim in row] for row in (dims, added.dims)])
    if joined != dims:
        raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    return Extent(dims)


@rule("linear")
def linear(step: Step) -> Extent:
    """Weights hold no filling, nor does the last dim."""
    source, weight = step.extent("input"), step.extent("weight")
    step.require_unpadded("sums over", source.dims[-1], *weight.dims)
    return Extent((*source.dims[:-1], *step.fresh().dims[len(source.dims) - 1 :]))


@rule("scaled_dot_product_attention")
def attention(step: Step) -> Extent:
    """Keys hold no filling, unless a causal mask keeps every query from the keys behind it."""
    query, key, value = (step.extent(name) for name in ("query", "key", "value"))
    if step.value("dropout_p"):
        raise Dependent("`aten.scaled_dot_product_attention` draws random numbers")
    step.require_unpadded("sums over", query.dims[-1], key.dims[-1], value.dims[-1])
    if step.value("enable_gqa"):
        step.require_unpadded("groups the heads of", query.dims[-3], key.dims[-3], value.dims[-3])
        key, value = (item.with_dims([*item.dims[:-3], query.dims[-3], *item.dims[-2:]]) for item in (key, value))
    is_causal = step.value("is_causal") and query.dims[-2] == key.dims[-2] and len(key.dims[-2]) == 1
    if not is_causal:
        step.require_unpadded("attends over", key.dims[-2], value.dims[-2])
    if key.dims[-2] != value.dims[-2]:
        raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    rows = [query.dims[:-2], key.dims[:-2], value.dims[:-2]]
    mask = step.value("attn_mask")
    if isinstance(mask, Extent):
        padded = [ONE] * (2 - len(mask.dims)) + list(mask.dims)
        if padded[-2] not in (ONE, query.dims[-2]) or padded[-1] not in (ONE, key.dims[-2]):
            raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
        rows.append(tuple(padded[:-2]))
    batches = broadcast(rows, [[0 if dim else 1 for dim in row] for row in rows])
    if batches is None:
        raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    return Extent((*batches, query.dims[-2], value.dims[-1]))


@rule("layer_norm", "rms_norm")
def last_dims_norm(step: Step) -> Extent:
    """The normalised dims hold no filling."""
    source = step.extent("input")
    step.require_unpadded("normalises over", *source.dims[-len(step.value("normalized_shape")) :])
    return Extent(source.dims)


@rule("conv1d", "conv2d", "conv3d", "convolution", "group_norm", "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d")
@rule("avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "batch_norm", "upsample_nearest2d")
def batched(step: Step) -> Extent:
    """Only dim 0 may hold filling: each of its rows is an example of its own."""
    if step.name.startswith("batch_norm") and step.value("training"):
        raise Dependent(f"`aten.batch_norm` in training mode averages over {step.proof.label}")
    source = step.extent("input" if "input" in step.given else "self")
    if step.name.startswith("conv") and len(source.dims) != len(step.extent("weight").dims):
        raise Dependent(f"`aten.{step.name}` without a batch is not known to keep rows apart along {step.proof.label}")
    others = [dim for name, node in step.tensors().items() if name not in ("input", "self") for dim in _of(step, node)]
    step.require_unpadded("combines positions of", *source.dims[1:], *others)
    return Extent((source.dims[0], *step.fresh().dims[1:]))


def _of(step: Step, node: Any) -> tuple[Dim, ...]:
    found: tuple[Dim, ...] = step.proof.value(node).dims
    return found


@rule("embedding")
def embedding(step: Step) -> Extent:
    """The table holds no filling."""
    step.require_unpadded("looks up in", *step.extent("weight").dims)
    return Extent((*step.extent("indices").dims, step.extent("weight").dims[1]))
