"""Combined counters of the methods of an attached model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gearcache.guards.gears.short_names import by_short_name
from gearcache.serving.call.method import CachedMethod
from gearcache.telemetry.stats import Stats


class GenerationStats(Stats):
    """The sums of all methods of one attached model; `methods` has the counters of each."""

    def __init__(self, methods: Mapping[str, CachedMethod]) -> None:
        self._stats = {name: method.stats for name, method in methods.items()}
        sums = Stats.together(list(self._stats.values()))
        super().__init__(sums._counters, sums._calls_by_kind)

    @property
    def methods(self) -> dict[str, Stats]:
        """The `Stats` of each method by its name."""
        return dict(self._stats)

    @property
    def gears(self) -> dict[str, int]:
        """Calls per gear, as `prefill: gear` and `decode: gear`."""
        return {f"{name}: {gear}": calls for name, stats in self._stats.items() for gear, calls in stats.gears.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return everything that is counted as plain data for JSON."""
        return {**super().to_dict(), "methods": {name: stats.to_dict() for name, stats in self._stats.items()}}

    def __repr__(self) -> str:
        gears = {
            f"{name}: {gear}": calls
            for name, stats in self._stats.items()
            for gear, calls in by_short_name(stats.gears).items()
        }
        return (
            f"GenerationStats(hits={self.hits}, misses={self.misses}, traces={self.traces}, compiles={self.compiles}, "
            f"loads={self.loads}, calls={self.calls}, gears={gears}, eager_reasons={self.eager_reasons})"
        )
