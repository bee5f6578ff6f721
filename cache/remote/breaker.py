"""Whether a tier is worth asking: what one process of a host has found out, the others need not."""

from __future__ import annotations

import contextlib
import os
import time
from hashlib import sha256
from pathlib import Path

from gearcache.cache.atomic import write_atomic

#: So many faults in a row, each within this time of the one before, and nobody asks for that time.
FAULTS = 3
REST_SECONDS = 60.0


class Breaker:
    """The faults of one tier, in a file that the processes of a host share: one byte for each fault since a success.

    Nothing rests on it but time: a file that cannot be read or written is none.
    """

    def __init__(self, folder: Path, label: str) -> None:
        self._path = folder / f"remote-{sha256(label.encode()).hexdigest()[:16]}"

    def is_open(self) -> bool:
        """Whether the tier is not to be asked now."""
        try:
            found = self._path.stat()
        except OSError:
            return False
        return found.st_size >= FAULTS and 0 <= time.time() - found.st_mtime < REST_SECONDS

    def fault(self) -> None:
        """Note that the tier failed; one failure after the rest opens it again."""
        with contextlib.suppress(OSError):
            if self._is_old():
                write_atomic(self._path, b"!" * (FAULTS - 1) if self._path.stat().st_size >= FAULTS else b"")
            descriptor = os.open(
                self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            try:
                os.write(descriptor, b"!")
            finally:
                os.close(descriptor)

    def success(self) -> None:
        """Note that it answered."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _is_old(self) -> bool:
        with contextlib.suppress(OSError):
            return time.time() - self._path.stat().st_mtime >= REST_SECONDS
        return False
