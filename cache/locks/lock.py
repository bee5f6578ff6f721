"""Locks: one compiler per key and host; and the lock of a whole store, which writers share."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gearcache.cache.files.trust import open_regular
from gearcache.errors import LockTimeout, PublishError
from gearcache.threads import waiting_time

_POLL_SECONDS = 0.01
#: Seconds that this process has waited in vain for a lock since it last had it, by path and kind. The holder hangs or
#: was stopped: a process waits for it once, not once for each of its methods.
_waited_seconds: dict[tuple[str, str], float] = {}


@contextmanager
def key_lock(path: Path, timeout: float) -> Iterator[None]:
    """Hold the kernel lock of `path`, whose folder must exist; `LockTimeout` after `timeout` seconds.

    The timeout applies to the whole process: after it, no thread waits again until the lock was free once. Excludes
    threads as well as processes, and is not reentrant. A holder that dies releases it. The file is never unlinked: a
    waiter could then hold a lock on a file that no newcomer finds.
    """
    if timeout < 0:
        raise ValueError(f"a lock timeout is at least 0 seconds, got {timeout:g}")
    # Imported here: a hit takes no lock, and a relaunch has no time for filelock.
    from filelock import FileLock, Timeout

    # A new object for each holder: flock is per open file, so threads exclude one another too. No soft lock,
    # which a killed holder would leave behind.
    patience = _Patience(path, "key", timeout)
    lock = FileLock(path, timeout=patience.left, mode=0o600, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise LockTimeout(path, patience.ended()) from error
    except (OSError, NotImplementedError) as error:
        raise PublishError(path, f"it cannot be locked: {error}") from error
    patience.rewarded()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def store_lock(path: Path, timeout: float, *, alone: bool) -> Iterator[None]:
    """Share the lock of a store while writing, or have it `alone` while deleting; its folder must exist.

    Shared holds may nest. Raises `PublishError` when the lock is not acquired within `timeout` seconds, which apply to
    the whole process as for `key_lock`. A holder that dies releases it. Not filelock, whose locks are exclusive, or
    need SQLite to be shared.
    """
    patience = _Patience(path, "alone" if alone else "shared", timeout)
    deadline = time.monotonic() + patience.left
    try:
        descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise PublishError(path, f"it cannot be locked: {error.strerror}") from error
    try:
        while not _try_lock(descriptor, path, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
            if time.monotonic() >= deadline:
                others = "is writing or deleting" if alone else "is deleting entries"
                raise PublishError(path, f"another process {others} since {patience.ended():g} s")
            time.sleep(_POLL_SECONDS)
        patience.rewarded()
        yield
    finally:
        unlock(descriptor)
        os.close(descriptor)


class _Patience:
    """How long this process may wait for a lock now; `left` is in seconds."""

    def __init__(self, path: Path, kind: str, timeout: float) -> None:
        self._lock = str(path), kind
        self.left = waiting_time(max(0.0, timeout - _waited_seconds.get(self._lock, 0.0)))

    def ended(self) -> float:
        """Record a wait in vain, and return the seconds that this process has waited in all."""
        _waited_seconds[self._lock] = seconds = self.left + _waited_seconds.get(self._lock, 0.0)
        return round(seconds, 2)

    def rewarded(self) -> None:
        """Reset the wait budget once the lock was acquired."""
        _waited_seconds.pop(self._lock, None)


def unlock(descriptor: int) -> None:
    """Release a kernel lock, also for a child that was forked meanwhile: it has the descriptor too, and may live on."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _try_lock(descriptor: int, path: Path, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise PublishError(path, f"it cannot be locked: {error.strerror}") from error
    return True
