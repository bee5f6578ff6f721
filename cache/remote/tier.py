"""One tier as a process uses it: its engine, opened when it is needed, and what its faults cost."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from gearcache.cache.layout import Layout
from gearcache.cache.remote.breaker import Breaker
from gearcache.cache.remote.patient import Patient, again
from gearcache.cache.remote.probe import honours_create
from gearcache.cache.remote.protocol import Deadline, Remote, RemoteError
from gearcache.cache.remote.tier_counts import TierCounts
from gearcache.cache.remote.urls import TierURL
from gearcache.cache.waits import waiting_time
from gearcache.errors import OptionError

_Result = TypeVar("_Result")
#: A fault that took so many seconds is one too many: nobody of this host pays for the next one for some time.
_DEAR_SECONDS = 1.0
_PROBE_SECONDS = 5.0
#: Those that this process uses: methods share their connections.
_opened: dict[tuple[TierURL, Layout], Tier] = {}


class Tier:
    """A tier of one cache folder. Safe to use from several threads; each operation raises `RemoteError`."""

    def __init__(self, url: TierURL, layout: Layout) -> None:
        self.url = url
        self.label = url.label
        self.counts = TierCounts(layout, url.label)
        self._folder = layout.locks_folder
        self._breaker = Breaker(layout.locks_folder, url.label)
        self._remote: Remote | None = None
        #: Digests of blobs that were found damaged or missing there: they are sent again.
        self.damaged: set[str] = set()
        #: Leases that this process holds until what it has compiled is sent, by name.
        self.being_sent: Counter[str] = Counter()

    @property
    def is_resting(self) -> bool:
        """Whether nobody of this host asks it now, because it failed a moment ago."""
        return self._breaker.is_open()

    @property
    def rest_seconds(self) -> float:
        """For how long nobody of this host asks it; 0 where it may be asked."""
        return self._breaker.seconds_left()

    @property
    def remote(self) -> Remote:
        """The engine; `RemoteError` where its package is not installed."""
        if self._remote is None:
            try:
                self._remote = Patient(self.url.open())
            except OptionError as error:
                raise RemoteError(self.label, str(error)) from error
        return self._remote

    def path(self, name: str) -> Path:
        """Return what messages call an object: `s3:bucket/prefix/name`, which is no file."""
        return Path(f"{self.label.replace('://', ':')}/{name}")

    def has_leases(self) -> bool:
        """Whether of several hosts that take a lease only one gets it; asks a store that may not be believed."""
        deadline = Deadline.after(_PROBE_SECONDS)
        return self.ask(lambda remote: again(lambda: honours_create(remote, deadline, self._folder), deadline))

    def begin(self) -> Deadline:
        """Return until when one lookup may take."""
        return Deadline.after(waiting_time(self.url.budget))

    def ask(self, work: Callable[[Remote], _Result], *, is_telling: bool = True) -> _Result:
        """Return what some operations on the engine return, and note for the whole host whether that failed.

        That a small request succeeds, as one about a lease, tells nothing of others: `is_telling=False`.
        """
        begin = time.monotonic()
        try:
            found = work(self.remote)
        except RemoteError:
            self._breaker.fault(is_last=time.monotonic() - begin >= _DEAR_SECONDS)
            self.counts.add(faults=1)
            raise
        if is_telling:
            self._breaker.success()
        return found


def open_tiers(urls: Sequence[TierURL], layout: Layout) -> list[Tier]:
    """Return the tiers of a cache folder, those of this process where it has them; without a request."""
    root = Layout(layout.root)
    return [_opened.setdefault((url, root), Tier(url, root)) for url in urls]


os.register_at_fork(after_in_child=_opened.clear)
