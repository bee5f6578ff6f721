"""Counts for one cached method: the events that its calls cause, and the calls that no graph has served, by reason."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from gearcache.events import Event, emit
from gearcache.guards.evidence.reason import Reason
from gearcache.threads import freed_in_forks

#: The latest reasons of misses that are kept.
MOST_REASONS = 1000
#: Calls of this process, by method, and reason or class of the error.
_eager: Counter[tuple[str, str]] = Counter()
_refused: Counter[tuple[str, str]] = Counter()
_lock = freed_in_forks(threading.RLock())


class Counters(Struct):
    """The counts so far. `hits` and `misses` count lookups of variants, not calls; times are in seconds.

    Calls that no graph has served are counted for the process too, and by any thread.
    """

    method: str = ""
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
    #: Calls that the method itself has served, by reason: see `EAGER_REASONS`.
    eager: Counter[str] = field(default_factory=Counter)
    #: Calls that ended in one of gearcache's errors, by the name of its class.
    refused: Counter[str] = field(default_factory=Counter)

    @staticmethod
    def together(parts: Sequence[Counters]) -> Counters:
        """Return the sums of several."""
        sums = Counters()
        for name in Counters.__struct_fields__[1:]:
            for part in parts:
                setattr(sums, name, getattr(sums, name) + getattr(part, name))
        return sums

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

    def ran_eagerly(self, reason: str) -> None:
        """Count a call that the method itself serves, by its reason: see `EAGER_REASONS`."""
        with _lock:
            self.eager[reason] += 1
            _eager[self.method, reason] += 1

    def was_refused(self, error: Exception) -> None:
        """Count a call that ends in one of gearcache's errors, by the name of its class."""
        name = type(error).__name__
        with _lock:
            self.refused[name] += 1
            _refused[self.method, name] += 1


#: Why the method itself ran, as named in `.stats.eager_reasons` and the metrics.
EAGER_REASONS: dict[str, str] = {
    "on_miss": 'no graph takes such arguments, and `on_miss` is "eager"',
    "background": 'its graph was being compiled, with `on_miss="background"`',
    "refused": 'no graph could be made of it, with `on_miss="background"`',
    "stance": "`torch.compiler.set_stance` said so",
    "no operation": "it runs no tensor operation, so there is nothing to compile",
    "exception": "its trace ended in an exception, or those of the last calls did",
    "max_variants": "the entry has as many variants as it may have",
    "fault": "the cache failed, or what a compile needs was missing",
    "torch": "this release of torch was not tested, and what gearcache uses of it is missing or another one",
    "ranks": "the ranks of the job have not agreed on a graph for it (`gearcache.agree`)",
    "changed": "its module changed while its graph was made",
    "function mode": "a torch function mode was to see what the method calls",
    # Those of `gearcache.integrations`; `attach_generate` also names the argument of `generate` or of the model:
    "custom_generate": "`generate` runs a loop of the user",
    "generation_mode": "`generate` is neither greedy nor sampling nor with beams, but for example with drafts",
    "size": "more texts, or a longer one, than the largest graph takes",
    "features": "something else than texts, or arguments beside them",
    "empty text": "a text of which the mask shows no token",
    "prompt": "a pooling leaves out the prompt, whose length no graph takes",
    "modules": "the model was given other modules since it was attached",
    "training": "autograd was on, or the model in training mode",
    "no graph": "no graph could be made, or its result could not be cut",
}


def eager_calls() -> dict[tuple[str, str], int]:
    """Return (method, reason) -> calls of this process that the method itself served; never decreases."""
    with _lock:
        return dict(_eager)


def refused_calls() -> dict[tuple[str, str], int]:
    """Return (method, error class) -> calls of this process that were refused; never decreases."""
    with _lock:
        return dict(_refused)
