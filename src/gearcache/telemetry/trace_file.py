"""The file that `GEARCACHE_TRACE` names: no other process writes it while the process that wrote it is running.

Variables are inherited: a health probe, a prewarm or a child started beside a server has the same file name.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from gearcache.errors import PublishError


class TraceFile:
    """Writes one file repeatedly. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Open while this process runs, with a lock that marks the file as taken.
        self._descriptor = -1

    def write(self, data: bytes) -> None:
        """Replace the file; `PublishError` if that is impossible, or if a running process has written it."""
        from gearcache.cache.files.atomic import regular_target, write_atomic

        target = regular_target(self.path)
        if self._descriptor < 0 and _is_held(target):
            raise PublishError(
                self.path, "a process that runs has written it; `%p` in the name gives each process a file of its own"
            )
        write_atomic(target, data)
        descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self.release()
        self._descriptor = descriptor

    def release(self) -> None:
        """Let others write it; a forked child must call this, as it shares the lock."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _is_held(target: Path) -> bool:
    try:
        descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
