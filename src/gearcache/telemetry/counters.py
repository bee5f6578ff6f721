"""Counts the events that the calls of one cached method cause."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from gearcache.events import Event, emit
from gearcache.guards.evidence.reason import Reason


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
        _COUNT.get(event.kind, _ignore)(self, event)
        emit(event)


def _ignore(counters: Counters, event: Event) -> None:
    """Count nothing."""


def _hit(counters: Counters, event: Event) -> None:
    counters.hits += 1


def _miss(counters: Counters, event: Event) -> None:
    counters.misses += 1
    counters.miss_reasons.append(event.detail)


def _trace(counters: Counters, event: Event) -> None:
    counters.traces += 1
    counters.trace_seconds += event.seconds


def _compile(counters: Counters, event: Event) -> None:
    counters.compiles += 1
    counters.compile_seconds += event.seconds


def _load(counters: Counters, event: Event) -> None:
    counters.loads += len(event.gears)
    counters.load_seconds += event.seconds
    counters.bytes_loaded += event.bytes


def _publish(counters: Counters, event: Event) -> None:
    counters.bytes_stored += event.bytes


def _fault(counters: Counters, event: Event) -> None:
    counters.faults += 1


def _fetch(counters: Counters, event: Event) -> None:
    counters.fetches += len(event.gears)
    counters.bytes_fetched += event.bytes


def _upload(counters: Counters, event: Event) -> None:
    counters.uploads += event.bytes > 0
    counters.bytes_uploaded += event.bytes


def _lease(counters: Counters, event: Event) -> None:
    counters.lease_seconds += event.seconds


_COUNT: dict[str, Callable[[Counters, Event], None]] = {
    "hit": _hit,
    "miss": _miss,
    "trace": _trace,
    "compile": _compile,
    "load": _load,
    "publish": _publish,
    "fetch": _fetch,
    "upload": _upload,
    "lease": _lease,
    "fault": _fault,
}
