"""What operators do to padded rows: the list behind `ge_cache.independence`.

A rule returns the extents of the results, or raises `Dependent` where a real position would read filling. An operator
that is not listed is refused as soon as it sees filling, so the list may be incomplete but not wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gearcache.ge_cache.extents import ONE, Dim, Extent, broadcast, has_padding, normal, regroup
from gearcache.ge_cache.independence import Dependent, Rule, Step

RULES: dict[str, Rule] = {}
#: Arguments in which a padded size may stand: they only say how large a result is.
SIZE_ARGUMENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "expand", "broadcast_to"), ("size", "shape")),
    **dict.fromkeys(("zeros", "ones", "empty", "full", "new_zeros", "new_ones", "new_empty", "new_full"), ("size",)),
    "arange": ("end",),
    "slice": ("end",),
    "unflatten": ("sizes",),
}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


@_rule("masked_fill_", "to", "_to_copy", "type_as", "contiguous", "clone", "where", "__and__", "__or__", "copy_")
@_rule(
    "fill_", "zero_", "alias", "detach", "lift_fresh", "lift_fresh_copy", "dropout", "hardswish", "hardtanh", "_conj"
)
@_rule("zeros_like", "ones_like", "empty_like", "full_like", "float", "masked_fill")
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


@_rule("sum", "mean", "amax", "amin", "max", "min", "prod", "any", "all", "var", "std", "var_mean", "std_mean", "norm")
@_rule("linalg_vector_norm", "logsumexp", "argmax", "argmin", "count_nonzero", "nansum", "median")
def reduction(step: Step) -> Extent | list[Extent]:
    """Dims that are reduced must hold no filling."""
    if "other" in step.given:
        return elementwise(step)
    source = step.extent("self")
    reduced = _dims_of(step, len(source.dims))
    step.require_plain("reduces over", *(source.dims[dim] for dim in reduced))
    kept = [ONE if index in reduced else dim for index, dim in enumerate(source.dims)]
    if not step.given.get("keepdim", False):
        kept = [dim for index, dim in enumerate(kept) if index not in reduced]
    results = [Extent(tuple(kept)) for _ in step.result_sizes()]
    return results if isinstance(step.node.meta["val"], (list, tuple)) else results[0]


@_rule(
    "softmax", "_softmax", "log_softmax", "_log_softmax", "sort", "topk", "argsort", "cumsum", "cumprod", "glu", "flip"
)
@_rule("roll", "logcumsumexp")
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
        step.require_plain("combines positions of", *(source.dims[dim] for dim in dims))
    results = []
    for sizes in step.result_sizes():
        row = list(source.dims)
        for dim in dims:
            row[dim] = step.proof.plain_dims(sizes)[dim]
        results.append(Extent(tuple(row)))
    return results if isinstance(step.node.meta["val"], (list, tuple)) else results[0]


def _product(step: Step, left: Extent, right: Extent) -> tuple[Dim, ...]:
    """Return the dims of a matrix product of tensors of at least two dims."""
    step.require_plain("sums over", left.dims[-1], right.dims[-2])
    batches = broadcast(
        [left.dims[:-2], right.dims[:-2]],
        [[0 if dim else 1 for dim in row.dims[:-2]] for row in (left, right)],
    )
    if batches is None:
        raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    return (*batches, left.dims[-2], right.dims[-1])


@_rule("mm", "bmm", "matmul")
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


@_rule("addmm", "baddbmm")
def sum_and_product(step: Step) -> Extent:
    """A matrix product with something added."""
    first, second = ("mat1", "mat2") if "mat1" in step.given else ("batch1", "batch2")
    dims = _product(step, step.extent(first), step.extent(second))
    added = step.extent("self")
    joined = broadcast([dims, added.dims], [[0 if dim else 1 for dim in row] for row in (dims, added.dims)])
    if joined != dims:
        raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    return Extent(dims)


@_rule("linear")
def linear(step: Step) -> Extent:
    """Weights hold no filling, nor does the last dim."""
    source, weight = step.extent("input"), step.extent("weight")
    step.require_plain("sums over", source.dims[-1], *weight.dims)
    return Extent((*source.dims[:-1], *step.fresh().dims[len(source.dims) - 1 :]))


@_rule("scaled_dot_product_attention")
def attention(step: Step) -> Extent:
    """Keys hold no filling, unless a causal mask keeps every query from the keys behind it."""
    query, key, value = (step.extent(name) for name in ("query", "key", "value"))
    if step.value("dropout_p"):
        raise Dependent("`aten.scaled_dot_product_attention` draws random numbers")
    step.require_plain("sums over", query.dims[-1], key.dims[-1], value.dims[-1])
    if step.value("enable_gqa"):
        step.require_plain("groups the heads of", query.dims[-3], key.dims[-3], value.dims[-3])
        key, value = (item.with_dims([*item.dims[:-3], query.dims[-3], *item.dims[-2:]]) for item in (key, value))
    is_causal = step.value("is_causal") and query.dims[-2] == key.dims[-2] and len(key.dims[-2]) == 1
    if not is_causal:
        step.require_plain("attends over", key.dims[-2], value.dims[-2])
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


@_rule("layer_norm", "rms_norm")
def last_dims_norm(step: Step) -> Extent:
    """The normalised dims hold no filling."""
    source = step.extent("input")
    step.require_plain("normalises over", *source.dims[-len(step.value("normalized_shape")) :])
    return Extent(source.dims)


@_rule(
    "conv1d", "conv2d", "conv3d", "convolution", "group_norm", "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d"
)
@_rule("avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "batch_norm", "upsample_nearest2d")
def batched(step: Step) -> Extent:
    """Only dim 0 may hold filling: each of its rows is an example of its own."""
    if step.name.startswith("batch_norm") and step.value("training"):
        raise Dependent(f"`aten.batch_norm` in training mode averages over {step.proof.label}")
    source = step.extent("input" if "input" in step.given else "self")
    if step.name.startswith("conv") and len(source.dims) != len(step.extent("weight").dims):
        raise Dependent(f"`aten.{step.name}` without a batch is not known to keep rows apart along {step.proof.label}")
    others = [dim for name, node in step.tensors().items() if name not in ("input", "self") for dim in _of(step, node)]
    step.require_plain("combines positions of", *source.dims[1:], *others)
    return Extent((source.dims[0], *step.fresh().dims[1:]))


def _of(step: Step, node: Any) -> tuple[Dim, ...]:
    found: tuple[Dim, ...] = step.proof.value(node).dims
    return found


@_rule("embedding")
def embedding(step: Step) -> Extent:
    """The table holds no filling."""
    step.require_plain("looks up in", *step.extent("weight").dims)
    return Extent((*step.extent("indices").dims, step.extent("weight").dims[1]))


# -- shapes ------------------------------------------------------------------------------------------------


@_rule("view", "reshape", "_unsafe_view", "flatten", "unflatten")
def view(step: Step) -> Extent:
    """Factors are regrouped; a padded one is never cut."""
    source = step.extent("self")
    dims = regroup(source.dims, step.result_sizes()[0])
    if dims is None:
        raise Dependent(f"`aten.{step.name}` cuts or mixes rows of {step.proof.label}")
    found = source.with_dims(dims)
    return found if step.name.startswith("view") else Extent(found.dims, found.bound, False)


@_rule("permute", "transpose", "t", "unsqueeze", "squeeze", "movedim", "swapaxes")
def moved(step: Step) -> Extent:
    """Dims change place."""
    source = step.extent("self")
    dims, rank = list(source.dims), len(source.dims)
    packet = step.name.partition(".")[0]
    if packet == "permute":
        dims = [dims[item] for item in step.value("dims")]
    elif packet == "t":
        dims.reverse()
    elif step.name == "transpose.int":
        left, right = step.value("dim0") % rank, step.value("dim1") % rank
        dims[left], dims[right] = dims[right], dims[left]
    elif packet == "unsqueeze":
        dims.insert(step.value("dim") % (rank + 1), ONE)
    elif packet == "squeeze" and "dim" in step.given:
        removed = {item % rank for item in _listed(step.value("dim"))}
        # At a real size of 1 eager would drop the dim.
        step.require_plain("may drop", *(dims[index] for index in removed))
        dims = [dim for index, dim in enumerate(dims) if index not in removed or dim != ONE]
    else:
        raise Dependent(f"`aten.{step.name}` is not known to keep rows apart along {step.proof.label}")
    return source.with_dims(dims)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@_rule("expand", "expand_as", "broadcast_to")
def expand(step: Step) -> Extent:
    """A dim of size 1 is repeated; what is made padded that way must not be written."""
    source, wide = step.extent("self"), step.fresh().dims
    dims: list[Dim] = [ONE] * (len(wide) - len(source.dims)) + list(source.dims)
    found = [large if dim == ONE else dim for dim, large in zip(dims, wide, strict=True)]
    grows = any(dim == ONE and has_padding(large) for dim, large in zip(dims, wide, strict=True))
    return Extent(tuple(found), source.bound, source.is_writable and not grows)


@_rule("slice")
def slice_(step: Step) -> Extent:
    """A padded dim is taken whole; any other may be cut at a padded size."""
    source = step.extent("self")
    dims = list(source.dims)
    index = step.value("dim") % len(dims)
    before = step.proof.sizes(step.given["self"].meta["val"])[index]
    after = step.result_sizes()[0][index]
    starts_at_zero = step.value("start") in (None, 0) and step.value("step") == 1
    if starts_at_zero and before == after:
        return source
    step.require_plain("takes a part of", dims[index])
    dims[index] = step.proof.plain_dims([after])[0]
    grows = has_padding(dims[index])
    if grows and not starts_at_zero:
        raise Dependent(f"`aten.{step.name}` takes a part of {step.proof.label}")
    return Extent(tuple(dims), source.bound, source.is_writable and not grows)


@_rule("select")
def select(step: Step) -> Extent:
    """Of a padded dim only the first row is real at every size."""
    source = step.extent("self")
    dims = list(source.dims)
    taken = dims.pop(step.value("dim") % len(dims))
    if step.value("index") != 0:
        step.require_plain("takes one row of", taken)
    return source.with_dims(dims)


@_rule("split", "split_with_sizes", "chunk", "unbind", "tensor_split")
def split(step: Step) -> list[Extent]:
    """The split dim holds no filling."""
    source = step.extent("self")
    index = step.value("dim") % len(source.dims)
    step.require_plain("splits", source.dims[index])
    results = []
    for sizes in step.result_sizes():
        dims = list(source.dims)
        dims[index : index + 1] = [] if step.name.startswith("unbind") else [step.proof.plain_dims(sizes)[index]]
        results.append(source.with_dims(dims))
    return results


@_rule("cat", "concat", "stack")
def join(step: Step) -> Extent:
    """Tensors are joined along a dim without filling, or with filling in the last one only."""
    tensors = [item for item in step.value("tensors") if isinstance(item, Extent)]
    sizes = step.result_sizes()[0]
    index = step.value("dim") % len(sizes)
    if step.name.startswith("stack"):
        rows = {item.dims for item in tensors}
        joined = step.proof.plain_dims([len(tensors)])[0]
        if len(rows) != 1:
            raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    else:
        rows = {(*item.dims[:index], *item.dims[index + 1 :]) for item in tensors}
        step.require_plain("puts rows behind those of", *(item.dims[index] for item in tensors[:-1]))
        joined = normal(step.proof.plain_dims(sizes)[index])
        if len(rows) != 1 or (len(tensors[-1].dims[index]) > 1 and has_padding(tensors[-1].dims[index])):
            raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    (row,) = rows
    return Extent((*row[:index], joined, *row[index:]))


@_rule("constant_pad_nd", "pad")
def pad(step: Step) -> Extent:
    """Padded dims are left as they are."""
    source, given = step.extent("self"), step.value("pad")
    dims, fresh = list(source.dims), step.fresh().dims
    for position in range(len(given) // 2):
        index = len(dims) - 1 - position
        if given[2 * position : 2 * position + 2] != [0, 0]:
            step.require_plain("extends", dims[index])
            dims[index] = fresh[index]
    return Extent(tuple(dims))


@_rule("repeat")
def repeat(step: Step) -> Extent:
    """Repeating puts a plain factor around a dim."""
    source, counts = step.extent("self"), step.value("repeats")
    dims: list[Dim] = [ONE] * (len(counts) - len(source.dims)) + list(source.dims)
    return Extent(tuple(normal(((count, False), *dim)) for count, dim in zip(counts, dims, strict=True)))


@_rule("repeat_interleave.self_int")
def repeat_rows(step: Step) -> Extent:
    """Repeating each row puts a plain factor inside a dim."""
    source, dim = step.extent("self"), step.value("dim")
    if dim is None:
        raise Dependent("`aten.repeat_interleave` without a dim mixes rows")
    dims = list(source.dims)
    dims[dim % len(dims)] = normal((*dims[dim % len(dims)], (step.value("repeats"), False)))
    return Extent(tuple(dims))


@_rule("tril", "triu")
def triangle(step: Step) -> Extent:
    """Each position is kept or not by its own place."""
    source = step.extent("self")
    if any(len(dim) > 1 for dim in source.dims[-2:]):
        raise Dependent(f"`aten.{step.name}` mixes rows of {step.proof.label}")
    return Extent(source.dims)


@_rule("zeros", "ones", "empty", "full", "new_zeros", "new_ones", "new_empty", "new_full")
def filled(step: Step) -> Extent:
    """A constant of a padded size."""
    return step.fresh()


@_rule("arange")
def counted(step: Step) -> Extent:
    """Row numbers: the first ones are the same at every size."""
    if step.value("start") not in (None, 0) or step.value("step") not in (None, 1):
        raise Dependent(f"`aten.{step.name}` counts to {step.proof.label} from another number than 0")
    return Extent(step.fresh().dims, bound=step.value("end"))
