"""Padding rules of operators that read or write by index, see `ge_cache.padding.rows`.

A padded dim may be indexed only by row numbers of the same size (`x[torch.arange(n), last]`): any other number could
select filling, or count from the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from msgspec.structs import replace

from gearcache.ge_cache.padding.extents import ONE, Dim, Extent, broadcast, has_padding, size_of
from gearcache.ge_cache.padding.step import Dependent, PaddingRules, Step

RULES = PaddingRules()
rule = RULES.of


def _joined(step: Step) -> Dependent:
    return Dependent(f"`aten.{step.name}` joins rows of {step.proof.label} with others")


def _is_rows_of(index: Extent, dim: Dim) -> bool:
    """Return whether an index holds the row numbers of a dim."""
    return index.bound is not None and len(dim) == 1 and (index.bound - size_of(dim)) == 0


def _written(target: Extent) -> Extent:
    """Return a tensor after a write: nothing is known of its values."""
    return replace(target, fills={}, bound=None, counted=None, origin=())


def _places(step: Step, source: Extent, indices: list[Any], *, is_write: bool) -> tuple[Dim, ...]:
    """Return the dims of an indexing result; checks that real places are read, or written, by real indices."""
    tensor_indices = {dim: index for dim, index in enumerate(indices) if isinstance(index, Extent)}
    nodes = {dim: step.given["indices"][dim] for dim in tensor_indices}
    for node in nodes.values():
        if node.meta["val"].dtype in (torch.bool, torch.uint8):
            raise Dependent(f"`aten.{step.name}` selects by a mask, along {step.proof.label}")
    sizes = [step.proof.sizes(node.meta["val"]) for node in nodes.values()]
    common = broadcast([index.dims for index in tensor_indices.values()], sizes)
    if common is None:
        raise _joined(step)
    for dim, index in tensor_indices.items():
        if has_padding(source.dims[dim]) and not _is_rows_of(index, source.dims[dim]):
            raise Dependent(f"`aten.{step.name}` looks rows of {step.proof.label} up by numbers")
    if is_write and any(has_padding(dim) for dim in common):
        # Row numbers that are not in order could name a real row at filling.
        owners = [
            index
            for dim, index in tensor_indices.items()
            if has_padding(source.dims[dim]) and index.counted is not None and has_padding(index.dims[index.counted])
        ]
        if not owners or sum(has_padding(dim) for dim in common) > 1:
            raise Dependent(f"`aten.{step.name}` would write filling of {step.proof.label} into shared places")
    unindexed = [dim for index, dim in enumerate(source.dims) if index not in tensor_indices]
    order = sorted(tensor_indices)
    is_adjacent = order == list(range(order[0], order[0] + len(order)))
    position = order[0] if is_adjacent else 0
    return (*unindexed[:position], *common, *unindexed[position:])


@rule("index")
def index(step: Step) -> Extent:
    """`x[indices]`."""
    source, indices = step.extent("self"), step.value("indices")
    dims = _places(step, source, indices, is_write=False)
    return Extent(dims, fills=_fills(source, dims, {at: item for at, item in enumerate(indices) if item is not None}))


def _fills(source: Extent, dims: tuple[Dim, ...], tensor_indices: Mapping[int, Extent]) -> dict[int, Any]:
    """Return the fills of `x[indices]`: where an index counts along a dim, its filling selects filling."""
    common = len(dims) - (len(source.dims) - len(tensor_indices))
    order = sorted(tensor_indices)
    position = order[0] if order == list(range(order[0], order[0] + len(order))) else 0
    unindexed = [at for at in range(len(source.dims)) if at not in tensor_indices]
    places = {at: index if index < position else index + common for index, at in enumerate(unindexed)}
    for at, item in tensor_indices.items():
        if item.counted is not None and item.dims[item.counted] == source.dims[at]:
            places[at] = position + common - len(item.dims) + item.counted
    return {places[at]: value for at, value in source.fills.items() if at in places}


@rule("index_put", "index_put_")
def index_put(step: Step) -> Extent:
    """`x[indices] = values`."""
    source, values = step.extent("self"), step.extent("values")
    places = _places(step, source, step.value("indices"), is_write=True)
    rows = [places, values.dims]
    if broadcast(rows, [[0 if dim else 1 for dim in tensor_dims] for tensor_dims in rows]) != places:
        raise _joined(step)
    return _written(source)


@rule("index_select")
def index_select(step: Step) -> Extent:
    """`x.index_select(dim, index)`."""
    source, rows = step.extent("self"), step.extent("index")
    dims = list(source.dims)
    dim = step.value("dim") % len(dims)
    if has_padding(dims[dim]) and not _is_rows_of(rows, dims[dim]):
        raise Dependent(f"`aten.{step.name}` looks rows of {step.proof.label} up by numbers")
    dims[dim] = rows.dims[0] if rows.dims else ONE
    return Extent(tuple(dims))


@rule("index_copy", "index_copy_", "index_add_")
def index_copy(step: Step) -> Extent:
    """`x.index_copy_(dim, index, source)`: the index is the same at every size."""
    target, rows, source = step.extent("self"), step.extent("index"), step.extent("source")
    dim = step.value("dim") % len(target.dims)
    step.require_unpadded("writes at numbers of", target.dims[dim], *rows.dims)
    if any(left != right for at, (left, right) in enumerate(zip(target.dims, source.dims, strict=True)) if at != dim):
        raise _joined(step)
    return _written(target)


@rule("gather", "scatter", "scatter_", "scatter_add", "scatter_add_")
def gather(step: Step) -> Extent:
    """`x.gather(dim, index)`, and `scatter`, whose written dim has no filling either."""
    source, rows = step.extent("self"), step.extent("index")
    dim = step.value("dim") % len(source.dims)
    step.require_unpadded("looks up along", source.dims[dim])
    if "scatter" in step.name:
        step.require_unpadded("writes at numbers of", rows.dims[dim])
    parts = [rows] + ([step.extent("src")] if isinstance(step.value("src"), Extent) else [])
    for at, expected in enumerate(source.dims):
        for part in parts:
            if at != dim and part.dims[at] != expected and (has_padding(expected) or has_padding(part.dims[at])):
                raise _joined(step)
    return _written(source) if "scatter" in step.name else Extent(rows.dims)


@rule("one_hot")
def one_hot(step: Step) -> Extent:
    """A new last dim, whose size does not depend on filling."""
    if step.value("num_classes") == -1:
        raise Dependent(f"`aten.{step.name}` counts the classes of {step.proof.label}")
    return Extent((*step.extent("self").dims, *step.proof.unpadded_dims([step.value("num_classes")])))
