"""Mirrors calls into counters of prometheus_client, for scrapes answered by another process (multi-process mode)."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gearcache.threads import freed_in_forks

#: Label values -> calls of this process.
Read = Callable[[], Mapping[tuple[str, ...], int]]

#: Seconds by which a scrape may be behind.
INTERVAL = 1.0

_lock = freed_in_forks(threading.Lock())
#: Values in the files of this process, by family: they outlive a counter that is registered again.
_mirrored: dict[str, dict[tuple[str, ...], int]] = {}


class MirroredCalls:
    """Adds the calls of this process to counters, each second and again when it is closed or the process exits.

    Nothing is counted during a call. A scrape of this process could read the calls, but a scrape of another one only
    sees what prometheus_client's counters have written into their files. Threads do not survive a fork: create the
    object in the process that serves.
    """

    def __init__(self, families: Sequence[tuple[str, Any, Read]]) -> None:
        """Start to mirror families: name, counter with labels, and the function that reads the calls."""
        self._families = families
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gearcache-metrics", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Add the remaining calls, and stop."""
        atexit.unregister(self.close)
        self._closed.set()
        self._thread.join()
        self._update()

    def _run(self) -> None:
        while not self._closed.wait(INTERVAL):
            self._update()

    def _update(self) -> None:
        with _lock:
            for name, counter, read in self._families:
                mirrored = _mirrored.setdefault(name, {})
                for labels, calls in read().items():
                    if increase := calls - mirrored.get(labels, 0):
                        counter.labels(*labels).inc(increase)
                        mirrored[labels] = calls
