"""Threads that a host may refuse, locks that a forked child finds free, which threads import modules now, and how long
a thread waits for others, whatever a single wait allows: an agreement of ranks has a deadline.
"""

from __future__ import annotations

import _imp
import importlib
import math
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

#: For each module that is being imported, a weak reference to its lock (Python's `importlib._bootstrap`).
_module_locks: dict[Any, Any] = getattr(importlib._bootstrap, "_module_locks", {})
_Lock = TypeVar("_Lock")
_freed_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def started(thread: threading.Thread) -> bool:
    """Start a thread; False where the host has no more (`ulimit -u`, a container's `pids`), or the process ends."""
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def freed_in_forks(lock: _Lock) -> _Lock:
    """Return a `Lock` or `RLock` that forked children find free: they lack the thread that may hold it."""
    _freed_locks.add(lock)
    return lock


def is_owned(lock: Any) -> bool:
    """Return whether this thread holds an `RLock`: `threading.Condition` asks so too."""
    return bool(lock._is_owned())


def importing_threads() -> set[int]:
    """Return the threads that hold the lock of a module; one that an exception has interrupted may hold it for good."""
    owners = {getattr(reference(), "owner", None) for reference in list(_module_locks.values())}
    return {owner for owner in owners if owner is not None}


def is_importing() -> bool:
    """Return whether this thread is within an import, so that another thread may wait for it in its own imports."""
    return threading.get_ident() in importing_threads() or _imp.lock_held()


def _after_fork() -> None:
    for lock in _freed_locks:
        lock._at_fork_reinit()


os.register_at_fork(after_in_child=_after_fork)


class _Present(threading.local):
    """The moment, by `time.monotonic`, at which the waits of this thread end."""

    end = math.inf


_wait_limit = _Present()


@contextmanager
def waits_end_after(seconds: float) -> Iterator[None]:
    """Let no wait of this thread last longer than some seconds from now."""
    before = _wait_limit.end
    _wait_limit.end = min(before, time.monotonic() + seconds)
    try:
        yield
    finally:
        _wait_limit.end = before


def waiting_time(seconds: float) -> float:
    """Return how long a wait may last that allows itself some seconds."""
    return max(0.0, min(seconds, _wait_limit.end - time.monotonic()))


def are_limited() -> bool:
    """Return whether waits of this thread are limited."""
    return _wait_limit.end < math.inf
