"""Counters of one cached method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gearcache.guards.reason import Reason


@dataclass
class Counters:
    """What happened so far. `hits` and `misses` count lookups of variants, not calls."""

    hits: int = 0
    misses: int = 0
    traces: int = 0
    compiles: int = 0
    loads: int = 0
    faults: int = 0
    eager_calls: int = 0
    miss_reasons: list[str] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)


class Stats:
    """Read-only view of the counters.

    `hits`, `misses`: lookups that found or did not find a stored variant; `traces`: Dynamo captures; `compiles`:
    gears compiled; `loads`: gears loaded; `faults`: faults of the cache that were worked around; `calls`: calls that
    returned a result; `gears`: calls per gear; `shapes`: calls per shape met; `miss_reasons`: why each miss was one.
    """

    def __init__(
        self,
        counters: Counters,
        gear_calls: Callable[[], Mapping[str, int]],
        shape_calls: Callable[[], Mapping[tuple[int, ...], int]] = dict,
    ) -> None:
        self._counters = counters
        self._gear_calls = gear_calls
        self._shape_calls = shape_calls

    @property
    def hits(self) -> int:
        """Lookups that found a stored variant."""
        return self._counters.hits

    @property
    def misses(self) -> int:
        """Lookups that did not."""
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
    def calls(self) -> int:
        """Calls of compiled graphs, and calls that `on_miss="eager"` passed on."""
        return sum(self.gears.values()) + self._counters.eager_calls

    @property
    def gears(self) -> dict[str, int]:
        """Calls per gear."""
        return dict(self._gear_calls())

    @property
    def shapes(self) -> dict[tuple[int, ...], int]:
        """Calls per shape met, served or not: sizes of the geared dims, or of all dims of all arguments without gears.

        Those of a dynamic graph are only counted with `count_shapes`.
        """
        return dict(self._shape_calls())

    @property
    def miss_reasons(self) -> tuple[str, ...]:
        """Why each miss was one, in order."""
        return tuple(self._counters.miss_reasons)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons of all misses as objects: what differed first, with both values, file and line."""
        return tuple(self._counters.reasons)

    def __repr__(self) -> str:
        return (
            f"Stats(hits={self.hits}, misses={self.misses}, traces={self.traces}, compiles={self.compiles}, "
            f"loads={self.loads}, calls={self.calls}, gears={self.gears})"
        )
