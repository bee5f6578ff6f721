"""Counts calls per gear, for one method and for the whole process (including collected methods)."""

from __future__ import annotations

import itertools
import threading
import weakref

from gearcache.guards.dispatch.graph_call import GraphCall
from gearcache.threads import freed_in_forks

_lock = freed_in_forks(threading.RLock())
#: Gear, whether calls are padded to it, the counter of its graph, and the graph.
_Row = tuple[str, bool, "itertools.count[int]", "weakref.ref[GraphCall]"]

#: Stands for the sizes of padded calls, of which a server meets any number; a method has sums for so many.
PADDED = "padded"
_MOST = 1000


class Rows:
    """The calls of the graphs of one cached method: by counter while a graph is there, then as sums."""

    def __init__(self) -> None:
        #: The graphs that are there, and the sums of the others; exchanged as one, so that readers need no lock.
        self._counted: tuple[list[_Row], dict[tuple[str, bool], int]] = [], {}

    def add(self, gear: str, graph: GraphCall, *, is_padded: bool) -> None:
        """Count the calls of a graph; sum up those of graphs that are gone, as a program may load for ever."""
        rows, sums = self._counted
        live, sums = list[_Row](), dict(sums)
        for row in rows:
            name, was_padded, counter, counted = row
            if counted() is not None:
                live.append(row)
            else:
                known = (name, was_padded) in sums or len(sums) < _MOST
                row_key = (name if known else PADDED, was_padded)
                sums[row_key] = sums.get(row_key, 0) + calls_of(counter)
        self._counted = [*live, (gear, is_padded, graph.counter, weakref.ref(graph))], sums

    def calls(self, *kinds: bool) -> dict[str, int]:
        """Return gear -> calls of it, of the kinds: padded to it (True), or of its own sizes (False)."""
        rows, sums = self._counted
        counts = [(gear, is_padded, calls_of(counter)) for gear, is_padded, counter, _ in rows]
        calls: dict[str, int] = {}
        for gear, is_padded, count in [*((*key, count) for key, count in sums.items()), *counts]:
            if is_padded in kinds:
                calls[gear] = calls.get(gear, 0) + count
        return calls


_live: list[tuple[str, Rows, weakref.ref[GearUse]]] = []
_collected: dict[tuple[str, str], int] = {}


class GearUse:
    """The calls of all graphs that one cached method has loaded, including before a refresh. Thread-safe.

    A graph counts its calls by `next` of an `itertools.count`, which costs 30 ns; this class reads the counters.
    """

    def __init__(self, method: str) -> None:
        self._rows = Rows()
        with _lock:
            _fold()
            _live.append((method, self._rows, weakref.ref(self)))

    def add(self, gear: str, graph: GraphCall, *, is_padded: bool = False) -> None:
        """Count the calls of a graph; `is_padded`: the graph is that of a larger gear, at the sizes of the calls."""
        self._rows.add(gear, graph, is_padded=is_padded)

    def calls(self) -> dict[str, int]:
        """Return gear -> calls, for every gear that was loaded."""
        return self._rows.calls(True, False)

    def calls_by_kind(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return gear -> calls of the gears themselves, and of sizes that were padded to a gear."""
        return self._rows.calls(False), self._rows.calls(True)

    def padded_calls(self) -> int:
        """Return how many of these calls were padded to their gear."""
        return sum(self._rows.calls(True).values())


def gear_calls() -> dict[tuple[str, str], int]:
    """Return (method, gear) -> calls of this process, padded ones as gear `PADDED`; never decreases."""
    with _lock:
        _fold()
        totals = dict(_collected)
        for method, rows, _ in _live:
            _add(totals, method, rows)
    return totals


def _fold() -> None:
    """Keep only the sums of methods that were collected."""
    dead = [entry for entry in _live if entry[2]() is None]
    for method, rows, _ in dead:
        _add(_collected, method, rows)
    if dead:
        dead_ids = {id(entry) for entry in dead}
        _live[:] = [entry for entry in _live if id(entry) not in dead_ids]


def _add(totals: dict[tuple[str, str], int], method: str, rows: Rows) -> None:
    padded = sum(rows.calls(True).values())
    for gear, calls in [*rows.calls(False).items(), *([(PADDED, padded)] if padded else [])]:
        totals[method, gear] = totals.get((method, gear), 0) + calls


def calls_of(counter: itertools.count[int]) -> int:
    """Return how many values a counter has given."""
    return int(repr(counter)[len("count(") : -1])
