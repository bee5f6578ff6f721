"""The file that `GEARCACHE_TRACE` names: while the process that has written it lives, no other one writes it.

Variables are inherited: a health probe, a prewarm or a child that was started beside a server has the same name in it.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from gearcache.errors import PublishError


class TraceFile:
    """Writes one file, again and again. Not safe for threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Open while this process lives, with a lock that says so.
        self._held = -1

    def write(self, data: bytes) -> None:
        """Replace what is there; `PublishError` where that cannot be, or a process that lives has written it."""
        from gearcache.cache.atomic import regular_target, write_atomic

        target = regular_target(self.path)
        if self._held < 0 and _is_held(target):
            raise PublishError(
                self.path, "a process that runs has written it; `%p` in the name gives each process a file of its own"
            )
        write_atomic(target, data)
        descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self.release()
        self._held = descriptor

    def release(self) -> None:
        """Let others write it; a forked child must, as it shares the lock."""
        descriptor, self._held = self._held, -1
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
