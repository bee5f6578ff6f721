"""The shapes of a binding's calls and their counts, read from the graphs' own counters, at no cost per call."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import torch

from gearcache.guards.dispatch.graph_call import MOST_SHAPES, GraphCall
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.gears.parse import GearSpec, RangeAxis
from gearcache.telemetry.gear_use import CountedGraphs, calls_of

Shape = tuple[int, ...]
#: Dims of shapes, gears over these dims, and calls by shape.
Met = tuple[tuple[tuple[str, int], ...], tuple[tuple[int | None, ...], ...], dict[Shape, int]]
Rows = tuple[tuple[int | None, ...], ...]
_Counted = tuple[tuple[int, ...], ...]
#: The variant and the sizes of a graph, and its counters.
_Row = tuple[StoredVariant, Rows, "itertools.count[int]", dict[_Counted, int]]


class ShapesMet:
    """Shapes over the dims that the spec names, or over all dims of all arguments without a spec."""

    def __init__(self, spec: GearSpec) -> None:
        self._spec = spec
        self._dims = self._named_dims()
        self._others: dict[Shape, int] = {}
        self._counted = CountedGraphs(self._with_calls)

    def count_call(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Count a call that no graph served: it was refused, or ran eagerly. `tensors` are its arguments by path."""
        if not self._spec:
            return
        sizes = []
        for path, dim in self._dims:
            size = next((tensor.size(dim) for name, tensor in _matching(tensors, path) if dim < tensor.dim()), None)
            if size is None:
                return
            sizes.append(size)
        if tuple(sizes) in self._others or len(self._others) < MOST_SHAPES:
            self._others[tuple(sizes)] = self._others.get(tuple(sizes), 0) + 1

    def unserved(self) -> tuple[list[str], dict[Shape, int]]:
        """Return the dims of the spec, as messages name them, and the calls without a graph by shape."""
        return [f"{path}.size({dim})" for path, dim in self._dims], dict(self._others)

    def add(self, graph: GraphCall) -> None:
        """Read the counters of a graph from now on, even after it is dropped."""
        if not self._spec and not self._dims:
            self._dims = _argument_dims(graph.variant)
        sizes = tuple(tuple(row) for row in graph.gear.sizes)
        self._counted.add(graph, (graph.variant, sizes, graph.counter, graph.shapes))

    def dims(self) -> list[tuple[str, int]]:
        """Return the dims that a shape lists: argument path and dim."""
        return self._dims

    def gears(self) -> list[tuple[int | None, ...]]:
        """Return the declared gears over the dims that a shape lists; None if a gear leaves a dim open."""
        open_dims = (None,) * (len(self._dims) - len(self._spec.axes))
        return [(*gear, *open_dims) for gear in self._spec.gears] if self._spec.axes else []

    def counts(self) -> dict[Shape, int]:
        """Return shape -> calls."""
        totals = self._counted.totals()
        for shape, calls in list(self._others.items()):
            totals[shape] = totals.get(shape, 0) + calls
        return totals

    def _with_calls(self, rows: Iterable[_Row], sums: Mapping[Shape, int]) -> dict[Shape, int]:
        totals = dict(sums)
        for variant, sizes, counter, shapes in rows:
            for row, calls in [(sizes, calls_of(counter)), *shapes.items()]:
                shape = _shape(variant, row, self._dims)
                if shape is not None and calls:
                    totals[shape] = totals.get(shape, 0) + calls
        return totals

    def _named_dims(self) -> list[tuple[str, int]]:
        return [(axis.path, axis.dim) for axis in (*self._spec.axes, *self._spec.dynamic_axes)]


def _argument_dims(variant: StoredVariant) -> list[tuple[str, int]]:
    """Return all dims of the tensors that are arguments."""
    return [
        (stored.access.text, dim)
        for stored, sizes in zip(variant.inputs, variant.gears[0].sizes, strict=True)
        if stored.access.root[0] == "argument" and stored.in_frame
        for dim in range(len(sizes))
    ]


def _matching(tensors: Mapping[str, torch.Tensor], path: str) -> list[tuple[str, torch.Tensor]]:
    return [(name, tensor) for name, tensor in tensors.items() if RangeAxis(path, 0, 1).matches(name)]


def _shape(variant: StoredVariant, rows: Rows, dims: list[tuple[str, int]]) -> Shape | None:
    """Return the sizes of some dims; None if a dim is dynamic or does not exist."""
    sizes = []
    for path, dim in dims:
        axis = RangeAxis(path, dim, 1)
        row = next((row for item, row in zip(variant.inputs, rows, strict=False) if axis.matches(item.access.text)), ())
        size = row[dim] if dim < len(row) else None
        if size is None:
            return None
        sizes.append(size)
    return tuple(sizes)
