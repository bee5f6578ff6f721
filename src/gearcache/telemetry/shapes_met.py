"""Which shapes a binding has met, and how often: read off the graphs' own counters, so that no call pays for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from gearcache.guards.dispatch.graph_call import GraphCall
from gearcache.guards.dispatch.variant import StoredVariant
from gearcache.guards.gears.parse import GearSpec
from gearcache.serving.activate import ActiveVariant

Shape = tuple[int, ...]
Rows = tuple[tuple[int | None, ...], ...]


class ShapesMet:
    """Shapes over the dims that the spec names, or over all dims of all arguments where there is no spec."""

    def __init__(self, spec: GearSpec) -> None:
        self._spec = spec
        self._others: dict[Shape, int] = {}
        self._gone: list[tuple[StoredVariant, Rows, int]] = []

    def count_call(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Count a call that no graph served: it was refused, or ran eagerly. `tensors` are its arguments by path."""
        if not self._spec:
            return
        sizes = []
        for path, dim in self._named():
            size = next((tensor.size(dim) for name, tensor in _matching(tensors, path) if dim < tensor.dim()), None)
            if size is None:
                return
            sizes.append(size)
        self._others[tuple(sizes)] = self._others.get(tuple(sizes), 0) + 1

    def keep(self, graph: GraphCall) -> None:
        """Keep what a graph counted that is about to be dropped."""
        self._gone.append((graph.variant, _rows(graph), graph.calls))

    def dims(self, active: Iterable[ActiveVariant]) -> list[tuple[str, int]]:
        """Return the dims that a shape lists: argument path and dim."""
        if self._spec:
            return self._named()
        for item in active:
            inputs = [stored for stored in item.variant.inputs if stored.access.root[0] == "argument"]
            rows = item.variant.gears[0].sizes
            return [
                (stored.access.text, dim)
                for stored, row in zip(item.variant.inputs, rows, strict=True)
                if stored in inputs and stored.in_frame
                for dim in range(len(row))
            ]
        return []

    def counts(self, active: Iterable[ActiveVariant]) -> dict[Shape, int]:
        """Return shape -> calls."""
        variants = list(active)
        dims = self.dims(variants)
        found = dict(self._others)
        rows = [(graph.variant, _rows(graph), graph.calls) for item in variants for graph in item.graphs]
        counted = [
            (graph.variant, row, calls)
            for item in variants
            for graph in item.graphs
            for row, calls in graph.shapes.items()
        ]
        for variant, row, calls in [*rows, *counted, *self._gone]:
            shape = _shape(variant, row, dims)
            if shape is not None and calls:
                found[shape] = found.get(shape, 0) + calls
        return found

    def _named(self) -> list[tuple[str, int]]:
        return [(axis.path, axis.dim) for axis in (*self._spec.axes, *self._spec.dynamic_axes)]


def _rows(graph: GraphCall) -> Rows:
    return tuple(tuple(row) for row in graph.gear.sizes)


def _matching(tensors: Mapping[str, torch.Tensor], path: str) -> list[tuple[str, torch.Tensor]]:
    from gearcache.guards.gears.parse import RangeAxis

    return [(name, tensor) for name, tensor in tensors.items() if RangeAxis(path, 0, 1).matches(name)]


def _shape(variant: StoredVariant, rows: Rows, dims: list[tuple[str, int]]) -> Shape | None:
    """Return the sizes of some dims; None where a dim is dynamic or not there."""
    from gearcache.guards.gears.parse import RangeAxis

    sizes = []
    for path, dim in dims:
        axis = RangeAxis(path, dim, 1)
        row = next((row for item, row in zip(variant.inputs, rows, strict=False) if axis.matches(item.access.text)), ())
        size = row[dim] if dim < len(row) else None
        if size is None:
            return None
        sizes.append(size)
    return tuple(sizes)
