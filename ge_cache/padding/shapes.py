"""Padding rules of operators that only move, join or repeat positions, see `ge_cache.padding.rows`."""

from __future__ import annotations

from typing import Any

import torch
from msgspec.structs import replace

from gearcache.ge_cache.padding.extents import ONE, Dim, Extent, has_padding, kept, normal, regroup
from gearcache.ge_cache.padding.fills import constant_fills, held
from gearcache.ge_cache.padding.step import Dependent, PaddingRules, Step

RULES = PaddingRules()
rule = RULES.of


@rule("view", "reshape", "_unsafe_view", "flatten", "unflatten")
def view(step: Step) -> Extent:
    """Factors are regrouped; a padded one is never cut."""
    if step.name == "view.dtype":
        raise Dependent(f"`aten.{step.name}` takes the bits of {step.proof.label} for other numbers")
    source = step.extent("self")
    dims = regroup(source.dims, step.result_sizes()[0])
    if dims is None:
        raise Dependent(f"`aten.{step.name}` cuts or mixes rows of {step.proof.label}")
    result = source.with_dims(dims, kept(source.dims, dims))
    sizes = [step.proof.sizes(step.given["self"].meta["val"]), step.result_sizes()[0]]
    if source.origin and sizes[1][:-2] == sizes[0][:-1]:  # rows are split, not joined
        result = replace(result, origin=(*source.origin, sizes[1]))
    return result if step.name.startswith("view") else replace(result, is_writable=False)


@rule("permute", "transpose", "t", "mT", "numpy_T", "unsqueeze", "squeeze", "movedim", "swapaxes", "swapdims")
def moved(step: Step) -> Extent:
    """Dims change place."""
    source = step.extent("self")
    rank = len(source.dims)
    order: list[int | None] = list(range(rank))  # for each dim of the result its source, None for a new dim
    packet = step.name.partition(".")[0]
    if packet == "permute":
        order = [item % rank for item in step.value("dims")]
    elif packet in ("t", "numpy_T"):
        order.reverse()
    elif packet == "mT":
        order[-2:] = order[-1], order[-2]
    elif step.name == "transpose.int" or packet in ("swapaxes", "swapdims"):
        names = ("axis0", "axis1") if packet == "swapaxes" else ("dim0", "dim1")
        left, right = (step.value(name) % rank for name in names)
        order[left], order[right] = order[right], order[left]
    elif packet == "movedim":
        order = list(_moved(rank, _as_list(step.value("source")), _as_list(step.value("destination"))))
    elif packet == "unsqueeze":
        order.insert(step.value("dim") % (rank + 1), None)
    elif packet == "squeeze" and "dim" in step.given:
        removed = {item % rank for item in _as_list(step.value("dim"))}
        # At a real size of 1 eager would drop the dim.
        step.require_unpadded("may drop", *(source.dims[index] for index in removed))
        order = [index for index, dim in enumerate(source.dims) if index not in removed or dim != ONE]
    else:
        raise Dependent(f"`aten.{step.name}` is not known to keep rows apart along {step.proof.label}")
    places = {source_dim: position for position, source_dim in enumerate(order) if source_dim is not None}
    result = source.with_dims([ONE if item is None else source.dims[item] for item in order], places)
    is_ordered = bool(source.origin) and order[-1] == rank - 1
    return replace(result, origin=(*source.origin, order) if is_ordered else ())


def _moved(rank: int, sources: list[int], destinations: list[int]) -> list[int]:
    """Return for each dim of `x.movedim(sources, destinations)` its source dim."""
    origins = {to % rank: at % rank for at, to in zip(sources, destinations, strict=True)}
    unmoved = iter(index for index in range(rank) if index not in origins.values())
    return [origins[index] if index in origins else next(unmoved) for index in range(rank)]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@rule("expand", "expand_as", "broadcast_to")
def expand(step: Step) -> Extent:
    """A dim of size 1 is repeated; a dim padded in this way must not be written."""
    source, wide = step.extent("self"), step.fresh().dims
    dims: list[Dim] = [ONE] * (len(wide) - len(source.dims)) + list(source.dims)
    result_dims = [large if dim == ONE else dim for dim, large in zip(dims, wide, strict=True)]
    grows = any(dim == ONE and has_padding(large) for dim, large in zip(dims, wide, strict=True))
    shift = len(wide) - len(source.dims)
    places = {index: index + shift for index, dim in enumerate(source.dims) if dim != ONE}
    return replace(source.with_dims(result_dims, places), is_writable=source.is_writable and not grows)


@rule("slice")
def slice_(step: Step) -> Extent:
    """A padded dim is taken whole; any other may be cut at a padded size."""
    source = step.extent("self")
    dims = list(source.dims)
    index = step.value("dim") % len(dims)
    full_size = step.proof.sizes(step.given["self"].meta["val"])[index]
    part_size = step.result_sizes()[0][index]
    starts_at_zero = step.value("start") in (None, 0) and step.value("step") == 1
    if starts_at_zero and full_size == part_size:
        return source
    step.require_unpadded("takes a part of", dims[index])
    dims[index] = step.proof.unpadded_dims([part_size])[0]
    grows = has_padding(dims[index])
    if grows and not starts_at_zero:
        raise Dependent(f"`aten.{step.name}` takes a part of {step.proof.label}")
    places = {item: item for item in range(len(dims)) if item != index}
    return replace(source.with_dims(dims, places), is_writable=source.is_writable and not grows)


@rule("select")
def select(step: Step) -> Extent:
    """Of a padded dim only the first row is real at every size."""
    source = step.extent("self")
    dims = list(source.dims)
    index = step.value("dim") % len(dims)
    selected_dim = dims.pop(index)
    if step.value("index") != 0:
        step.require_unpadded("takes one row of", selected_dim)
    return source.with_dims(dims, {item: item - (item > index) for item in range(len(source.dims)) if item != index})


@rule("split", "split_with_sizes", "chunk", "unbind", "tensor_split")
def split(step: Step) -> list[Extent]:
    """The split dim must have no filling."""
    source = step.extent("self")
    index = step.value("dim") % len(source.dims)
    step.require_unpadded("splits", source.dims[index])
    results = []
    for sizes in step.result_sizes():
        dims = list(source.dims)
        drops = step.name.startswith("unbind")
        dims[index : index + 1] = [] if drops else [step.proof.unpadded_dims(sizes)[index]]
        places = {item: item - (drops and item > index) for item in range(len(source.dims)) if item != index}
        results.append(source.with_dims(dims, places))
    return results


@rule("cat", "concat", "stack")
def join(step: Step) -> Extent:
    """Tensors are joined along a dim without filling, or with filling only in the last tensor."""
    tensors = [item for item in step.value("tensors") if isinstance(item, Extent)]
    sizes = step.result_sizes()[0]
    index = step.value("dim") % len(sizes)
    if len(sizes) > 1 and not step.name.startswith(
        "stack"
    ):  # of rank 1 is only an empty tensor, which `cat` leaves out
        tensors = [item for item in tensors if len(item.dims) > 1]
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
    (other_dims,) = rows
    return Extent((*other_dims[:index], joined, *other_dims[index:]))


@rule("constant_pad_nd", "pad")
def pad(step: Step) -> Extent:
    """Padded dims stay unchanged."""
    source, amounts = step.extent("self"), step.value("pad")
    dims, fresh = list(source.dims), step.fresh().dims
    for position in range(len(amounts) // 2):
        index = len(dims) - 1 - position
        if amounts[2 * position : 2 * position + 2] != [0, 0]:
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
    numbers = {"zeros": 0, "ones": 1, "full": step.given.get("fill_value")}
    number = held(numbers.get(step.packet.removeprefix("new_")), step.node.meta["val"].dtype)
    return replace(step.fresh(), fills=constant_fills(step.fresh().dims, number))


@rule("arange")
def counted(step: Step) -> Extent:
    """Row numbers: the first ones are the same at every size."""
    if step.value("start") not in (None, 0) or step.value("step") not in (None, 1):
        raise Dependent(f"`aten.{step.name}` counts to {step.proof.label} from another number than 0")
    if step.node.meta["val"].dtype not in (torch.int32, torch.int64):
        return step.fresh()  # other dtypes round large numbers
    return Extent(step.fresh().dims, bound=step.value("end"), counted=0)
