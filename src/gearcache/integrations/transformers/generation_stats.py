"""Combined counters of prefill and decode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gearcache.serving.call.method import CachedMethod

_SUMS = (
    "hits",
    "misses",
    "traces",
    "compiles",
    "loads",
    "faults",
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


class GenerationStats:
    """Read-only counters of one attached model in this process. `.prefill` and `.decode` have their own counters."""

    hits: int
    misses: int
    traces: int
    compiles: int
    loads: int
    faults: int
    trace_seconds: float
    compile_seconds: float
    load_seconds: float
    bytes_loaded: int
    bytes_stored: int
    fetches: int
    uploads: int
    bytes_fetched: int
    bytes_uploaded: int
    lease_seconds: float

    def __init__(self, methods: Mapping[str, CachedMethod], eager: Mapping[str, int]) -> None:
        self._stats = {name: method.stats for name, method in methods.items()}
        self._eager = dict(eager)

    def __getattr__(self, name: str) -> Any:
        if name in _SUMS:
            return sum(getattr(stats, name) for stats in self._stats.values())
        raise AttributeError(f"GenerationStats has no `{name}`")

    @property
    def methods(self) -> dict[str, Any]:
        """The `Stats` of each method by its name."""
        return dict(self._stats)

    @property
    def eager_reasons(self) -> dict[str, int]:
        """Calls of the model inside `generate` that the model itself served, by the argument that is the reason."""
        return dict(self._eager)

    @property
    def eager_calls(self) -> int:
        """Calls of the model inside `generate` that the model itself served."""
        return sum(self._eager.values())

    @property
    def calls(self) -> int:
        """Calls of graphs, and calls that the model itself served."""
        return sum(stats.calls for stats in self._stats.values()) + self.eager_calls

    @property
    def gears(self) -> dict[str, int]:
        """Calls per gear, as `prefill: gear` and `decode: gear`."""
        return {f"{name}: {gear}": calls for name, stats in self._stats.items() for gear, calls in stats.gears.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return everything that is counted as plain data for JSON."""
        names = (*_SUMS, "calls", "gears", "eager_calls", "eager_reasons")
        sums = {name: getattr(self, name) for name in names}
        return {**sums, "methods": {name: stats.to_dict() for name, stats in self._stats.items()}}

    def __repr__(self) -> str:
        from gearcache.guards.gears.short_names import by_short_name

        gears = {
            f"{name}: {gear}": calls
            for name, stats in self._stats.items()
            for gear, calls in by_short_name(stats.gears).items()
        }
        return (
            f"GenerationStats(hits={self.hits}, misses={self.misses}, traces={self.traces}, compiles={self.compiles}, "
            f"loads={self.loads}, calls={self.calls}, gears={gears}, eager_reasons={self.eager_reasons})"
        )
