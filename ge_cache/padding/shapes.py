"""What operators that only move, join or repeat positions do to padded rows, see `ge_cache.padding.rows`."""

from __future__ import annotations

from typing import Any

from gearcache.ge_cache.padding.extents import ONE, Dim, Extent, has_padding, normal, regroup
from gearcache.ge_cache.padding.step import Dependent, Rules, Step

RULES = Rules()
rule = RULES.of


@rule("view", "reshape", "_unsafe_view", "flatten", "unflatten")
def view(step: Step) -> Extent:
    """Factors are regrouped; a padded one is never cut."""
    source = step.extent("self")
    dims = regroup(source.dims, step.result_sizes()[0])
    if dims is None:
        raise Dependent(f"`aten.{step.name}` cuts or mixes rows of {step.proof.label}")
    found = source.with_dims(dims)
    return found if step.name.startswith("view") else Extent(found.dims, found.bound, False)


@rule("permute", "transpose", "t", "unsqueeze", "squeeze", "movedim", "swapaxes")
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
        step.require_unpadded("may drop", *(dims[index] for index in removed))
        dims = [dim for index, dim in enumerate(dims) if index not in removed or dim != ONE]
    else:
        raise Dependent(f"`aten.{step.name}` is not known to keep rows apart along {step.proof.label}")
    return source.with_dims(dims)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@rule("expand", "expand_as", "broadcast_to")
def expand(step: Step) -> Extent:
    """A dim of size 1 is repeated; what is made padded that way must not be written."""
    source, wide = step.extent("self"), step.fresh().dims
    dims: list[Dim] = [ONE] * (len(wide) - len(source.dims)) + list(source.dims)
    found = [large if dim == ONE else dim for dim, large in zip(dims, wide, strict=True)]
    grows = any(dim == ONE and has_padding(large) for dim, large in zip(dims, wide, strict=True))
    return Extent(tuple(found), source.bound, source.is_writable and not grows)


@rule("slice")
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
    step.require_unpadded("takes a part of", dims[index])
    dims[index] = step.proof.unpadded_dims([after])[0]
    grows = has_padding(dims[index])
    if grows and not starts_at_zero:
        raise Dependent(f"`aten.{step.name}` takes a part of {step.proof.label}")
    return Extent(tuple(dims), source.bound, source.is_writable and not grows)


@rule("select")
def select(step: Step) -> Extent:
    """Of a padded dim only the first row is real at every size."""
    source = step.extent("self")
    dims = list(source.dims)
    taken = dims.pop(step.value("dim") % len(dims))
    if step.value("index") != 0:
        step.require_unpadded("takes one row of", taken)
    return source.with_dims(dims)


@rule("split", "split_with_sizes", "chunk", "unbind", "tensor_split")
def split(step: Step) -> list[Extent]:
    """The split dim holds no filling."""
    source = step.extent("self")
    index = step.value("dim") % len(source.dims)
    step.require_unpadded("splits", source.dims[index])
    results = []
    for sizes in step.result_sizes():
        dims = list(source.dims)
        dims[index : index + 1] = [] if step.name.startswith("unbind") else [step.proof.unpadded_dims(sizes)[index]]
        results.append(source.with_dims(dims))
    return results


@rule("cat", "concat", "stack")
def join(step: Step) -> Extent:
    """Tensors are joined along a dim without filling, or with filling in the last one only."""
    tensors = [item for item in step.value("tensors") if isinstance(item, Extent)]
    sizes = step.result_sizes()[0]
    index = step.value("dim") % len(sizes)
    if step.name.startswith("stack"):
        rows = {item.dims for item in tensors}
        joined = step.proof.unpadded_dims([len(tensors)])[0]
        if len(rows) != 1:
            raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    else:
        rows = {(*item.dims[:index], *item.dims[index + 1 :]) for item in tensors}
        step.require_unpadded("puts rows behind those of", *(item.dims[index] for item in tensors[:-1]))
        joined = normal(step.proof.unpadded_dims(sizes)[index])
        if len(rows) != 1 or (len(tensors[-1].dims[index]) > 1 and has_padding(tensors[-1].dims[index])):
            raise Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")
    (row,) = rows
    return Extent((*row[:index], joined, *row[index:]))


@rule("constant_pad_nd", "pad")
def pad(step: Step) -> Extent:
    """Padded dims are left as they are."""
    source, given = step.extent("self"), step.value("pad")
    dims, fresh = list(source.dims), step.fresh().dims
    for position in range(len(given) // 2):
        index = len(dims) - 1 - position
        if given[2 * position : 2 * position + 2] != [0, 0]:
            step.require_unpadded("extends", dims[index])
            dims[index] = fresh[index]
    return Extent(tuple(dims))


@rule("repeat")
def repeat(step: Step) -> Extent:
    """Repeating puts an unpadded factor around a dim."""
    source, counts = step.extent("self"), step.value("repeats")
    dims: list[Dim] = [ONE] * (len(counts) - len(source.dims)) + list(source.dims)
    return Extent(tuple(normal(((count, False), *dim)) for count, dim in zip(counts, dims, strict=True)))


@rule("repeat_interleave.self_int")
def repeat_rows(step: Step) -> Extent:
    """Repeating each row puts an unpadded factor inside a dim."""
    source, dim = step.extent("self"), step.value("dim")
    if dim is None:
        raise Dependent("`aten.repeat_interleave` without a dim mixes rows")
    dims = list(source.dims)
    dims[dim % len(dims)] = normal((*dims[dim % len(dims)], (step.value("repeats"), False)))
    return Extent(tuple(dims))


@rule("tril", "triu")
def triangle(step: Step) -> Extent:
    """Each position is kept or not by its own place."""
    source = step.extent("self")
    if any(len(dim) > 1 for dim in source.dims[-2:]):
        raise Dependent(f"`aten.{step.name}` mixes rows of {step.proof.label}")
    return Extent(source.dims)


@rule("zeros", "ones", "empty", "full", "new_zeros", "new_ones", "new_empty", "new_full")
def filled(step: Step) -> Extent:
    """A constant of a padded size."""
    return step.fresh()


@rule("arange")
def counted(step: Step) -> Extent:
    """Row numbers: the first ones are the same at every size."""
    if step.value("start") not in (None, 0) or step.value("step") not in (None, 1):
        raise Dependent(f"`aten.{step.name}` counts to {step.proof.label} from another number than 0")
    return Extent(step.fresh().dims, bound=step.value("end"))
