"""The history of the lookups of one binding (counted as events, logged, kept as lines for `explain`)."""

from __future__ import annotations

import logging
from collections import Counter, deque
from typing import Any

from gearcache.errors import CacheError, GearcacheError, MissingTorchNames
from gearcache.events import Event, Kind
from gearcache.guards.evidence.reason import Reason
from gearcache.interrupts import raise_interrupt
from gearcache.telemetry.counters import Counters

logger = logging.getLogger("gearcache")
#: The most lines of `.explain()`; the earliest ones are dropped.
_MOST = 400


class History:
    """The lookups of one entry for one method."""

    def __init__(self, name: str, key_name: str, folder: str, counters: Counters, *, strict: bool) -> None:
        self.name = name
        self.lines: deque[str] = deque(maxlen=_MOST)
        #: What differed in explained misses, and in counted ones (after their kind), since the last graph was added.
        self._told: set[tuple[str, ...]] = set()
        #: Reasons of misses that are not yet in the cache's counts; they are added before a compile.
        self.uncounted: Counter[str] = Counter()
        self._key_name, self._folder = key_name, folder
        self._counters = counters
        self._strict = strict
        self._logged: set[str] = set()
        self._unlogged: dict[str, None] = {}

    def note(self, kind: Kind, **fields: Any) -> None:
        """Count an event and notify the listeners."""
        if kind in ("load", "publish"):  # the next call may miss for another value of the same subject
            self._told.clear()
        self._counters.note(Event(kind, self.name, self._key_name, folder=self._folder, **fields))

    def miss(self, *reasons: Reason, kind: str) -> None:
        """Count one miss, with one reason per stored variant; `kind` is the most specific of their kinds.

        A call that runs without a graph is looked up each time. Until a graph is added, such calls count once for what
        differs, whatever its value.
        """
        if not self._is_new((kind, *_subjects(reasons))):
            return
        self.note("miss", reason=kind, detail="; ".join(str(reason) for reason in reasons))
        self.uncounted[kind] += 1
        self.explain(reasons)

    def explain(self, reasons: tuple[Reason, ...]) -> None:
        """Keep and log, once, why no stored or loaded graph serves a call."""
        if not self._is_new(_subjects(reasons)):
            return
        self._counters.explain(reasons)
        self.lines.extend(line for reason in reasons for line in reason.explained())
        logger.info("%s: miss: %s", self.name, "; ".join(str(reason) for reason in reasons))

    def _is_new(self, subjects: tuple[str, ...]) -> bool:
        """Whether nothing was said about this yet; notes it."""
        if subjects in self._told:
            return False
        if len(self._told) >= _MOST:
            self._told.clear()
        self._told.add(subjects)
        return True

    def fault(self, error: Exception) -> None:
        """Apply the failure policy: a fault of the cache never breaks the model, unless `strict`.

        `error` may be of any type, but only the cache's own work may have raised it.
        """
        raise_interrupt(error)
        cache_error = error if isinstance(error, GearcacheError) else CacheError(f"{type(error).__name__}: {error}")
        if self._strict:
            raise cache_error from (error if cache_error is not error else error.__cause__)
        self.note("fault", detail=str(cache_error))
        if (line := f"fault: {cache_error}") not in self.lines:  # reading and writing have the same one
            self.lines.append(line)
        if str(cache_error) not in self._logged:
            self._unlogged[str(cache_error)] = None

    def fault_or_raise(self, error: Exception) -> None:
        """Record what a lookup, or a write of an entry, has raised as a fault; raise an error that is not of the cache.

        A lookup raises `InputError` for the user, and `OutdatedKey` for the method, which then makes another binding.
        """
        raise_interrupt(error)
        if isinstance(error, GearcacheError) and not isinstance(error, CacheError):
            raise error
        self.fault(error)

    def lacks(self, error: MissingTorchNames) -> None:
        """Record names that torch lacks, which the process warns about once; raises the error if `strict`."""
        if self._strict:
            raise error
        self.note("fault", detail=str(error))
        self.lines.append(f"fault: {error}")

    def lead(self, cause: str) -> None:
        """Put the cause of this call's faults first in its warning, if there are faults to report."""
        if self._unlogged and not any(text.startswith(cause) for text in self._unlogged):
            self._unlogged = {cause: None, **self._unlogged}

    def untold(self) -> list[str]:
        """Return the faults of the present call that were not reported yet."""
        return list(self._unlogged)

    def tell(self) -> None:
        """Log one warning about the faults of a call, at its end; each fault is logged once."""
        if self._unlogged:
            if len(self._logged) >= _MOST:  # texts of faults name temporary files
                self._logged.clear()
            self._logged |= self._unlogged.keys()
            text, self._unlogged = "; then ".join(self._unlogged), {}
            logger.warning("%s: the cache cannot be used: %s", self.name, text)


def _subjects(reasons: tuple[Reason, ...]) -> tuple[str, ...]:
    return tuple(f"{reason.kind}: {reason.subject or reason.text}" for reason in reasons)
