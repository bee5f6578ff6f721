"""Counts the events that the calls of one cached method cause."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from gearcache.events import Event, emit
from gearcache.guards.evidence.reason import Reason

#: The latest reasons of misses that are kept.
MOST_REASONS = 1000


class Counters(Struct):
    """The counts so far. `hits` and `misses` count lookups of variants, not calls; times are in seconds."""

    hits: int = 0
    misses: int = 0
    traces: int = 0
    compiles: int = 0
    loads: int = 0
    faults: int = 0
    trace_seconds: float = 0.0
    compile_seconds: float = 0.0
    load_seconds: float = 0.0
    bytes_loaded: int = 0
    bytes_stored: int = 0
    fetches: int = 0
    uploads: int = 0
    bytes_fetched: int = 0
    bytes_uploaded: int = 0
    lease_seconds: float = 0.0
    miss_reasons: list[str] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)

    def note(self, event: Event) -> None:
        """Count an event, and notify the listeners."""
        match event.kind:
            case "hit":
                self.hits += 1
            case "miss":
                self.misses += 1
                self.miss_reasons = [*self.miss_reasons[1 - MOST_REASONS :], event.detail]
            case "trace":
                self.traces += 1
                self.trace_seconds += event.seconds
            case "compile":
                self.compiles += 1
                self.compile_seconds += event.seconds
            case "load":
                self.loads += len(event.gears)
                self.load_seconds += event.seconds
                self.bytes_loaded += event.bytes
            case "publish":
                self.bytes_stored += event.bytes
            case "fetch":
                self.fetches += len(event.gears)
                self.bytes_fetched += event.bytes
            case "upload":
                self.uploads += event.bytes > 0
                self.bytes_uploaded += event.bytes
            case "lease":
                self.lease_seconds += event.seconds
            case "fault":
                self.faults += 1
        emit(event)

    def explain(self, reasons: Iterable[Reason]) -> None:
        """Keep why no graph served a call."""
        self.reasons = [*self.reasons, *reasons][-MOST_REASONS:]
