"""Counts calls per gear, for one method and for the whole process (including collected methods)."""

from __future__ import annotations

import itertools
import os
import threading
import weakref

Rows = list[tuple[str, "itertools.count[int]", bool]]

_lock = threading.Lock()
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
_live: list[tuple[str, Rows, weakref.ref[GearUse]]] = []
_collected: dict[tuple[str, str], int] = {}
_collected_padded: dict[str, int] = {}


class GearUse:
    """The counters of all graphs that one cached method has loaded, including before a refresh. Thread-safe.

    A graph counts its calls by `next` of an `itertools.count`, which costs 30 ns; this class reads the counters.
    """

    def __init__(self, method: str) -> None:
        self._rows: Rows = []
        with _lock:
            _fold()
            _live.append((method, self._rows, weakref.ref(self)))

    def add(self, gear: str, counter: itertools.count[int], *, is_padded: bool = False) -> None:
        """Add the counter of a graph; `is_padded`: the graph is that of a larger gear, at the sizes of the calls."""
        self._rows.append((gear, counter, is_padded))

    def calls(self) -> dict[str, int]:
        """Return gear -> calls, for every gear that was loaded."""
        return _sum(self._rows)

    def calls_by_kind(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return gear -> calls of the gears themselves, and of sizes that were padded to a gear."""
        return _sum([row for row in self._rows if not row[2]]), _sum([row for row in self._rows if row[2]])

    def padded_calls(self) -> int:
        """Return how many of these calls were padded to their gear."""
        return _padded(self._rows)


def gear_calls() -> dict[tuple[str, str], int]:
    """Return (method, gear) -> calls of this process; never decreases."""
    with _lock:
        _fold()
        totals = dict(_collected)
        for method, rows, _ in _live:
            _add(totals, method, rows)
    return totals


def padded_calls() -> dict[str, int]:
    """Return method -> calls of this process that were padded to a gear; never decreases."""
    with _lock:
        _fold()
        totals = dict(_collected_padded)
        for method, rows, _ in _live:
            if calls := _padded(rows):
                totals[method] = totals.get(method, 0) + calls
    return totals


def _fold() -> None:
    """Keep only the sums of methods that were collected."""
    dead = [entry for entry in _live if entry[2]() is None]
    for method, rows, _ in dead:
        _add(_collected, method, rows)
        if calls := _padded(rows):
            _collected_padded[method] = _collected_padded.get(method, 0) + calls
    if dead:
        dead_ids = {id(entry) for entry in dead}
        _live[:] = [entry for entry in _live if id(entry) not in dead_ids]


def _add(totals: dict[tuple[str, str], int], method: str, rows: Rows) -> None:
    for gear, calls in _sum(rows).items():
        totals[method, gear] = totals.get((method, gear), 0) + calls


def _sum(rows: Rows) -> dict[str, int]:
    calls: dict[str, int] = {}
    for gear, counter, _ in list(rows):
        calls[gear] = calls.get(gear, 0) + calls_of(counter)
    return calls


def _padded(rows: Rows) -> int:
    return sum(calls_of(counter) for _, counter, is_padded in list(rows) if is_padded)


def calls_of(counter: itertools.count[int]) -> int:
    """Return how many values a counter has given."""
    return int(repr(counter)[len("count(") : -1])
