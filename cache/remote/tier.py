"""One tier as a process uses it: its engine, opened at first use, its breakers and its counts."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from gearcache.cache.layout import Layout
from gearcache.cache.remote.breaker import Breaker
from gearcache.cache.remote.engines.probe import honours_create
from gearcache.cache.remote.engines.protocol import Deadline, Denied, Late, Remote, RemoteError, TooLarge
from gearcache.cache.remote.engines.retrying import Patient, again
from gearcache.cache.remote.tier_counts import TierCounts
from gearcache.cache.remote.urls import TierURL
from gearcache.errors import OptionError
from gearcache.threads import waiting_time

_Result = TypeVar("_Result")
#: A fault that took this many seconds stops requests of this host at once, for some time.
_DEAR_SECONDS = 1.0
_PROBE_SECONDS = 5.0
#: Transfers of blobs may take a second more for each so many bytes.
_BYTES_PER_SECOND = 1 << 20
#: The tiers of this process: methods share their connections.
_tiers: dict[tuple[TierURL, Layout], Tier] = {}


class Tier:
    """A tier of one cache folder. Safe to use from several threads; each operation raises `RemoteError`."""

    def __init__(self, url: TierURL, layout: Layout) -> None:
        self.url = url
        self.label = url.label
        self.counts = TierCounts(layout, url.label)
        self._folder = layout.locks_folder
        self._reads = Breaker(layout.locks_folder, url.label)
        self._writes = Breaker(layout.locks_folder, f"{url.label} writes")
        self._remote: Patient | None = None
        #: Digests of blobs found damaged or missing in the tier: they are sent again.
        self.damaged: set[str] = set()
        #: Leases that this process holds until its compiled result is sent, by name.
        self.being_sent: Counter[str] = Counter()

    @property
    def is_resting(self) -> bool:
        """Return whether this host does not ask the tier now, because it failed a moment ago."""
        return self._reads.is_open()

    @property
    def takes_writes(self) -> bool:
        """Return whether this host may send something now: neither reads nor writes failed a moment ago."""
        return not (self._reads.is_open() or self._writes.is_open())

    @property
    def rest_seconds(self) -> float:
        """Return for how many seconds this host does not ask the tier, or sends nothing there; 0 where it does both."""
        return max(self._reads.seconds_left(), self._writes.seconds_left())

    @property
    def remote(self) -> Patient:
        """The engine; `RemoteError` where its package is not installed."""
        if self._remote is None:
            try:
                self._remote = Patient(self.url.open())
            except OptionError as error:
                raise RemoteError(self.label, str(error)) from error
        return self._remote

    def path(self, name: str) -> Path:
        """Return the name of an object in messages: `s3:bucket/prefix/name`, which is not a file."""
        return Path(f"{self.label.replace('://', ':')}/{name}")

    def has_leases(self) -> bool:
        """Return whether only one of several hosts that take a lease gets it; probes an engine that does not know."""
        deadline = Deadline.after(_PROBE_SECONDS)
        return self.write(
            lambda remote: again(lambda: honours_create(remote, deadline, self._folder), deadline), is_telling=False
        )

    def begin(self, size: int = 0, least: float = 0.0) -> Deadline:
        """Return the deadline of one lookup, or of a transfer of `size` bytes that may take `least` seconds."""
        return Deadline.after(waiting_time(max(self.url.budget, least) + size / _BYTES_PER_SECOND))

    def ask(self, work: Callable[[Remote], _Result]) -> _Result:
        """Return the result of some reads from the engine, and record for the whole host whether they failed."""
        return self._record(work, self._reads, is_telling=True)

    def write(self, work: Callable[[Remote], _Result], *, is_telling: bool = True) -> _Result:
        """Return the result of operations that also write: if they fail, this host goes on reading.

        `is_telling=False` for a small request, such as one about a lease: its success says nothing about larger ones.
        """
        return self._record(work, self._writes, is_telling=is_telling)

    def _record(self, work: Callable[[Remote], _Result], breaker: Breaker, *, is_telling: bool) -> _Result:
        begin, remote = time.monotonic(), self.remote
        objects_read = remote.objects_read
        try:
            result = work(remote)
        except RemoteError as error:
            self.counts.add(faults=1)
            is_slow = isinstance(error, Late) and remote.objects_read > objects_read
            if not is_slow and not isinstance(error, TooLarge):
                is_dear = time.monotonic() - begin >= _DEAR_SECONDS
                breaker.fault(is_last=is_dear or (breaker is self._writes and isinstance(error, Denied)))
            raise
        if is_telling:
            breaker.success()
        return result


def open_tiers(urls: Sequence[TierURL], layout: Layout) -> list[Tier]:
    """Return the tiers of a cache folder, reusing those of this process; makes no request."""
    root = Layout(layout.root)
    return [_tiers.setdefault((url, root), Tier(url, root)) for url in urls]


os.register_at_fork(after_in_child=_tiers.clear)
