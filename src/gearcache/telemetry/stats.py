"""Counters and times of one cached method, updated by the events that its calls cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gearcache.guards.evidence.reason import Reason
from gearcache.telemetry.counters import Counters

if TYPE_CHECKING:
    from gearcache.telemetry.method_shapes import MethodShapes


#: Returns calls by gear: of its own sizes, and padded to it.
CallsByKind = Callable[[], tuple[dict[str, int], dict[str, int]]]


class Stats:
    """Read-only view of the counters of one cached method in this process; `to_dict` returns them as plain data."""

    def __init__(
        self,
        counters: Counters,
        calls_by_kind: CallsByKind,
        method_shapes: Callable[[], MethodShapes | None] = lambda: None,
    ) -> None:
        self._counters = counters
        self._calls_by_kind = calls_by_kind
        self._method_shapes = method_shapes

    @classmethod
    def together(cls, parts: Sequence[Stats]) -> Stats:
        """Return the current sums of several views."""
        counters = Counters.together([part._counters for part in parts])
        shapes = [part_shapes for part in parts if (part_shapes := part._method_shapes()) is not None]
        return cls(counters, lambda: _sum_calls(parts), lambda: _sum_shapes(shapes))

    def to_dict(self) -> dict[str, Any]:
        """Return everything that is counted as plain data for JSON.

        The names are those of the properties. `shapes` is a list of `{"shape": [...], "calls": n}`, as JSON has no
        tuples for keys; `dims` names the sizes, and `declared` has the gears; `gearcache suggest-gears` reads these
        fields. `miss_reasons` has the texts.
        """
        plain = {name: getattr(self, name) for name in _PLAIN}
        shapes = self._method_shapes()
        return {**plain, **(shapes.to_plain() if shapes else {}), "miss_reasons": list(self.miss_reasons)}

    @property
    def hits(self) -> int:
        """Lookups that found a stored variant."""
        return self._counters.hits

    @property
    def misses(self) -> int:
        """Lookups that found no stored variant."""
        return self._counters.misses

    @property
    def traces(self) -> int:
        """Dynamo captures made by this process."""
        return self._counters.traces

    @property
    def compiles(self) -> int:
        """Gears compiled by this process."""
        return self._counters.compiles

    @property
    def loads(self) -> int:
        """Gears loaded by this process."""
        return self._counters.loads

    @property
    def faults(self) -> int:
        """Faults of the cache that were worked around."""
        return self._counters.faults

    @property
    def eager_calls(self) -> int:
        """Calls that the method itself served, for any of `eager_reasons`."""
        return sum(self.eager_reasons.values())

    @property
    def eager_reasons(self) -> dict[str, int]:
        """Calls that the method itself served, by reason; see `gearcache.telemetry.counters.EAGER_REASONS`."""
        return dict(self._counters.eager)

    @property
    def refused_calls(self) -> int:
        """Calls that ended in one of gearcache's errors."""
        return sum(self.refused_errors.values())

    @property
    def refused_errors(self) -> dict[str, int]:
        """Calls that ended in one of gearcache's errors, by the name of its class."""
        return dict(self._counters.refused)

    @property
    def padded_calls(self) -> int:
        """Calls that were padded to a larger gear."""
        return sum(self._calls_by_kind()[1].values())

    @property
    def trace_seconds(self) -> float:
        """Time spent in Dynamo captures."""
        return self._counters.trace_seconds

    @property
    def compile_seconds(self) -> float:
        """Time spent in compilers, summed over gears."""
        return self._counters.compile_seconds

    @property
    def load_seconds(self) -> float:
        """Time spent on reading, verifying, checking and loading stored gears."""
        return self._counters.load_seconds

    @property
    def bytes_loaded(self) -> int:
        """Bytes of the blobs of loaded gears."""
        return self._counters.bytes_loaded

    @property
    def bytes_stored(self) -> int:
        """Bytes of the blobs of entries that this process wrote."""
        return self._counters.bytes_stored

    @property
    def fetches(self) -> int:
        """Gears that were fetched from tiers beyond this host."""
        return self._counters.fetches

    @property
    def uploads(self) -> int:
        """Entries that this process sent to tiers."""
        return self._counters.uploads

    @property
    def bytes_fetched(self) -> int:
        """Bytes of blobs that were fetched from tiers."""
        return self._counters.bytes_fetched

    @property
    def bytes_uploaded(self) -> int:
        """Bytes that this process sent to tiers."""
        return self._counters.bytes_uploaded

    @property
    def lease_seconds(self) -> float:
        """Time spent on waiting for other hosts that compiled the same."""
        return self._counters.lease_seconds

    @property
    def calls(self) -> int:
        """Calls of compiled graphs, and calls that the method itself served."""
        return sum(self.gears.values()) + self.eager_calls

    @property
    def gears(self) -> dict[str, int]:
        """Calls per gear."""
        own, padded = self._calls_by_kind()
        return {gear: own.get(gear, 0) + padded.get(gear, 0) for gear in {**own, **padded}}

    @property
    def shapes(self) -> dict[tuple[int, ...], int]:
        """Calls per shape, served or not: sizes of the geared dims, or of all dims of all arguments without gears.

        Calls of a dynamic graph are only counted with `count_shapes`.
        """
        method_shapes = self._method_shapes()
        return dict(method_shapes.shapes) if method_shapes else {}

    @property
    def miss_reasons(self) -> tuple[str, ...]:
        """The reason of each miss, in order."""
        return tuple(self._counters.miss_reasons)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons of all misses as objects: the first difference, with both values, file and line."""
        return tuple(self._counters.reasons)

    def __repr__(self) -> str:
        from gearcache.guards.gears.short_names import by_short_name

        return (
            f"Stats(hits={self.hits}, misses={self.misses}, traces={self.traces}, compiles={self.compiles}, "
            f"loads={self.loads}, calls={self.calls}, gears={by_short_name(self.gears)})"
        )


def _sum_calls(parts: Sequence[Stats]) -> tuple[dict[str, int], dict[str, int]]:
    totals = Counter[str](), Counter[str]()
    for part in parts:
        for total, calls in zip(totals, part._calls_by_kind(), strict=True):
            total.update(calls)
    return totals


def _sum_shapes(parts: Sequence[MethodShapes]) -> MethodShapes | None:
    """Return the summed shapes of equal blocks; blocks with other dims than the first one are left out."""
    if not parts:
        return None
    shapes = Counter[tuple[int, ...]]()
    for part in parts:
        if part.dims == parts[0].dims:
            shapes.update(part.shapes)
    return replace(parts[0], shapes=shapes)


#: The properties that `Stats.to_dict` copies unchanged.
_PLAIN = (
    "hits",
    "misses",
    "traces",
    "compiles",
    "loads",
    "faults",
    "calls",
    "gears",
    "padded_calls",
    "eager_calls",
    "eager_reasons",
    "refused_calls",
    "refused_errors",
    "trace_seconds",
    "compile_seconds",
    "load_seconds",
    "bytes_loaded",
    "bytes_stored",
    "fetches",
    "uploads",
    "bytes_fetched",
    "bytes_uploaded",
    "lease_seconds",
)
