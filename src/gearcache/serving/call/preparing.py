"""Locks for the time in which a thread prepares a call: finds, loads or compiles the graph that serves it.

Locks are acquired in one order: that of the method, that of the key (a file), the turn to trace
(`ge_cache.capture.turns`). A thread prepares one call at a time: a call in the meantime (by a fake kernel, in a signal
handler) runs uncached. Listeners are notified afterwards, so that no thread waits for the lock of another method while
holding one.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from gearcache.collection import paused_collection
from gearcache.events import held_events
from gearcache.threads import are_limited, is_owned, waiting_time


class MethodLock:
    """Keeps other threads out while one prepares a call of a method."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        #: Whether this process was forked while a thread of the parent prepared a call.
        self.is_abandoned = False
        _locks.add(self)

    @contextmanager
    def held(self, *, waits: bool = True) -> Iterator[bool]:
        """Hold the lock; unless it `waits`, yields False where another thread prepares a call."""
        lock, was_held, is_held = self._lock, is_owned(self._lock), False
        try:
            seconds = waiting_time(threading.TIMEOUT_MAX) if are_limited() else -1
            is_held = lock.acquire(timeout=seconds) if waits else lock.acquire(blocking=False)
            if waits and not is_held:
                raise TimeoutError("another thread of this process prepares a call of the method and does not end")
            yield is_held
        finally:
            if is_held or (is_owned(lock) and not was_held):  # a signal handler has raised when it was acquired
                lock.release()

    def after_fork(self) -> None:
        """Release the lock in a forked child, unless this thread holds it."""
        if not self._lock.acquire(blocking=False):
            self._lock, self.is_abandoned = threading.RLock(), True
        else:
            self._lock.release()


_locks: weakref.WeakSet[MethodLock] = weakref.WeakSet()


class _Present(threading.local):
    """Whether the current thread prepares a call."""

    is_preparing = False


_present = _Present()


def is_preparing() -> bool:
    """Whether this thread prepares a call now."""
    return _present.is_preparing


@contextmanager
def preparing(lock: MethodLock, *, waits: bool = True) -> Iterator[bool]:
    """Keep other threads out while the block prepares a call of a method; must not be nested.

    Unless it `waits`, yields False where another thread prepares a call.
    """
    with held_events():
        try:
            _present.is_preparing = True
            with lock.held(waits=waits) as is_free, paused_collection():
                yield is_free
        finally:
            _present.is_preparing = False


def _after_fork() -> None:
    for lock in list(_locks):
        lock.after_fork()


os.register_at_fork(after_in_child=_after_fork)
