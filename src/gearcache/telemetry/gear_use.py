"""Counts calls per gear and per shape, for one method and for the whole process (including collected methods).

The counters are those of the graphs: counting costs a call nothing more.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

import torch
from msgspec import Struct

from gearcache.guards.dispatch.graph_call import MOST_SHAPES, GraphCall
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.gears.parse import GearSpec, RangeAxis
from gearcache.threads import freed_in_forks

_lock = freed_in_forks(threading.RLock())
#: Stands for the sizes of padded calls, of which a server meets any number; a method has sums for so many.
PADDED = "padded"
_MOST = 1000
_Row = TypeVar("_Row")
_Key = TypeVar("_Key")
#: Gear, whether calls are padded to it, and the counter of its graph.
_GearRow = tuple[str, bool, "itertools.count[int]"]


class CountedGraphs(Generic[_Row, _Key]):
    """The calls of graphs: by a row for each graph that is there, and as sums of the others, as a program may load for
    ever. A row holds counters, and no model.
    """

    def __init__(self, sum_up: Callable[[Iterable[_Row], Mapping[_Key, int]], dict[_Key, int]]) -> None:
        """`sum_up` returns sums with the calls of some rows."""
        self._sum_up = sum_up
        #: Exchanged as one, so that readers need no lock.
        self._counted: tuple[list[tuple[weakref.ref[GraphCall], _Row]], dict[_Key, int]] = [], {}

    def add(self, graph: GraphCall, row: _Row) -> None:
        """Count the calls of a graph from now on."""
        rows, sums = self._counted
        states = [(each, each[0]() is not None) for each in rows]
        live = [each for each, is_live in states if is_live]
        gone = [row for (_, row), is_live in states if not is_live]
        self._counted = [*live, (weakref.ref(graph), row)], self._sum_up(gone, sums)

    def totals(self) -> dict[_Key, int]:
        """Return the calls of all graphs."""
        rows, sums = self._counted
        return self._sum_up([row for _, row in rows], sums)


def _with_calls(rows: Iterable[_GearRow], sums: Mapping[tuple[str, bool], int]) -> dict[tuple[str, bool], int]:
    totals = dict(sums)
    for gear, is_padded, counter in rows:
        is_named = not is_padded or (gear, True) in totals or len(totals) < _MOST
        key = gear if is_named else PADDED, is_padded
        totals[key] = totals.get(key, 0) + calls_of(counter)
    return totals


#: The graphs of one method.
_Graphs: TypeAlias = "CountedGraphs[_GearRow, tuple[str, bool]]"
_live: list[tuple[str, _Graphs, weakref.ref[GearUse]]] = []
_collected: dict[tuple[str, str], int] = {}


class GearUse:
    """The calls of all graphs that one cached method has loaded, including before a refresh. Thread-safe.

    A graph counts its calls by `next` of an `itertools.count`, which costs 30 ns; this class reads the counters.
    """

    def __init__(self, method: str) -> None:
        self._graphs = CountedGraphs(_with_calls)
        with _lock:
            _fold()
            _live.append((method, self._graphs, weakref.ref(self)))

    def add(self, gear: str, graph: GraphCall, *, is_padded: bool = False) -> None:
        """Count the calls of a graph; `is_padded`: the graph is that of a larger gear, at the sizes of the calls."""
        self._graphs.add(graph, (gear, is_padded, graph.counter))

    def calls_by_kind(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return gear -> calls of the gears themselves, and of sizes that were padded to a gear."""
        return _by_kind(self._graphs)


def gear_calls() -> dict[tuple[str, str], int]:
    """Return (method, gear) -> calls of this process, padded ones as gear `PADDED`; never decreases."""
    with _lock:
        _fold()
        totals = dict(_collected)
        for method, graphs, _ in _live:
            _add(totals, method, graphs)
    return totals


def _fold() -> None:
    """Keep only the sums of methods that were collected."""
    dead = [entry for entry in _live if entry[2]() is None]
    for method, graphs, _ in dead:
        _add(_collected, method, graphs)
    if dead:
        dead_ids = {id(entry) for entry in dead}
        _live[:] = [entry for entry in _live if id(entry) not in dead_ids]


def _add(totals: dict[tuple[str, str], int], method: str, graphs: _Graphs) -> None:
    own, padded = _by_kind(graphs)
    for gear, calls in own.items():
        totals[method, gear] = totals.get((method, gear), 0) + calls
    if padded_calls := sum(padded.values()):
        totals[method, PADDED] = totals.get((method, PADDED), 0) + padded_calls


def _by_kind(graphs: _Graphs) -> tuple[dict[str, int], dict[str, int]]:
    own: dict[str, int] = {}
    padded: dict[str, int] = {}
    for (gear, is_padded), calls in graphs.totals().items():
        (padded if is_padded else own)[gear] = calls
    return own, padded


def calls_of(counter: itertools.count[int]) -> int:
    """Return how many values a counter has given."""
    return int(repr(counter)[len("count(") : -1])


Shape = tuple[int, ...]
GearRows = tuple[tuple[int | None, ...], ...]
_Counted = tuple[tuple[int, ...], ...]
#: The variant and the sizes of a graph, and its counters.
_ShapeRow = tuple[StoredVariant, GearRows, "itertools.count[int]", dict[_Counted, int]]


def add_calls(counts: dict[Shape, int], shape: Shape, calls: int) -> None:
    """Count calls of a shape, unless it is another one of too many."""
    if shape in counts or len(counts) < MOST_SHAPES:
        counts[shape] = counts.get(shape, 0) + calls


class ShapeCounts(Struct, frozen=True):
    """Calls by shape, which lists the sizes of some dims, and the declared gears over these dims."""

    dims: tuple[tuple[str, int], ...] = ()
    #: None if a gear leaves a dim open.
    gears: GearRows = ()
    calls: Mapping[Shape, int] = {}

    @staticmethod
    def together(parts: Sequence[ShapeCounts]) -> ShapeCounts:
        """Return the sums of those that are over the same dims as the first one."""
        first = next((part for part in parts if part.dims), ShapeCounts())
        calls: dict[Shape, int] = {}
        for part in parts:
            for shape, number in part.calls.items() if part.dims == first.dims else ():
                add_calls(calls, shape, number)
        return ShapeCounts(first.dims, first.gears, calls)


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
        add_calls(self._others, tuple(sizes), 1)

    def unserved(self) -> tuple[list[str], dict[Shape, int]]:
        """Return the dims of the spec, as messages name them, and the calls without a graph by shape."""
        return [f"{path}.size({dim})" for path, dim in self._dims], dict(self._others)

    def add(self, graph: GraphCall) -> None:
        """Read the counters of a graph from now on, even after it is dropped."""
        if not self._spec and not self._dims:
            self._dims = _argument_dims(graph.variant)
        sizes = tuple(tuple(row) for row in graph.gear.sizes)
        self._counted.add(graph, (graph.variant, sizes, graph.counter, graph.shapes))

    def counts(self) -> ShapeCounts:
        """Return the calls so far."""
        open_dims = (None,) * (len(self._dims) - len(self._spec.axes))
        gears = [(*gear, *open_dims) for gear in self._spec.gears] if self._spec.axes else []
        totals = self._counted.totals()
        for shape, calls in list(self._others.items()):
            add_calls(totals, shape, calls)
        return ShapeCounts(tuple(self._dims), tuple(gears), totals)

    def _with_calls(self, rows: Iterable[_ShapeRow], sums: Mapping[Shape, int]) -> dict[Shape, int]:
        totals = dict(sums)
        for variant, sizes, counter, shapes in rows:
            for row, calls in [(sizes, calls_of(counter)), *shapes.items()]:
                shape = _shape(variant, row, self._dims)
                if shape is not None and calls:
                    add_calls(totals, shape, calls)
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


def _shape(variant: StoredVariant, rows: GearRows, dims: list[tuple[str, int]]) -> Shape | None:
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
