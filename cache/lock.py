"""One writer per key and host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gearcache.errors import LockTimeout, PublishError


@contextmanager
def key_lock(path: Path, timeout: float) -> Iterator[None]:
    """Hold the kernel lock of `path`, whose folder must exist; `LockTimeout` after `timeout` seconds.

    Excludes threads as well as processes, and is not reentrant. A holder that dies releases it. The file is
    never unlinked: a waiter could then hold a lock on a file that no newcomer finds.
    """
    if timeout < 0:
        raise ValueError(f"a lock timeout is at least 0 seconds, got {timeout:g}")
    # Imported here: a hit takes no lock, and a relaunch has no time for filelock.
    from filelock import FileLock, Timeout

    # A new object for each holder: flock is per open file, so threads exclude one another too. No soft lock,
    # which a killed holder would leave behind.
    lock = FileLock(path, timeout=timeout, mode=0o600, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise LockTimeout(path, timeout) from error
    except (OSError, NotImplementedError) as error:
        raise PublishError(path, f"it cannot be locked: {error}") from error
    try:
        yield
    finally:
        lock.release()
