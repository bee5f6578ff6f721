"""A circuit breaker for a tier, shared by the processes of a host."""

from __future__ import annotations

import contextlib
import os
import time
from hashlib import sha256
from pathlib import Path

from gearcache.cache.files.atomic import write_atomic
from gearcache.errors import CacheError

#: This many faults in a row, each within this time of the one before, stop requests for that time.
FAULTS = 3
REST_SECONDS = 60.0


class Breaker:
    """The faults of one tier, in a file that the processes of a host share: one byte for each fault since a success.

    Only time depends on it. An unreadable file counts as missing; where the file cannot be written, the process
    remembers its own faults.
    """

    def __init__(self, folder: Path, label: str) -> None:
        self._path = folder / f"remote-{sha256(label.encode()).hexdigest()[:16]}"
        #: Faults of this process that no file could hold, and the `time.monotonic` of the last one.
        self._own_faults, self._last = 0, 0.0

    def is_open(self) -> bool:
        """Return whether the tier should not be asked now."""
        if self._own_faults >= FAULTS and time.monotonic() - self._last < REST_SECONDS:
            return True
        return self.seconds_left() > 0.0

    def seconds_left(self) -> float:
        """Return for how many seconds no process of this host asks the tier, by the file; 0 where it may be asked."""
        with contextlib.suppress(OSError):
            state = self._path.stat()
            seconds = state.st_mtime + REST_SECONDS - time.time()
            if state.st_size >= FAULTS and 0.0 < seconds <= REST_SECONDS:
                return seconds
        return 0.0

    def fault(self, *, is_last: bool = False) -> None:
        """Record that the tier failed; `is_last`, or the first fault after a pause, stops requests at once."""
        number = FAULTS if is_last or self._is_after_rest() else 1
        try:
            if self._is_old():
                write_atomic(self._path, b"")
            descriptor = os.open(
                self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            try:
                os.write(descriptor, b"!" * number)
            finally:
                os.close(descriptor)
        except (OSError, CacheError):
            now = time.monotonic()
            self._own_faults = number + (self._own_faults if now - self._last < REST_SECONDS else 0)
            self._last = now

    def success(self) -> None:
        """Record that the tier answered."""
        self._own_faults = 0
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _is_old(self) -> bool:
        with contextlib.suppress(OSError):
            return time.time() - self._path.stat().st_mtime >= REST_SECONDS
        return False

    def _is_after_rest(self) -> bool:
        with contextlib.suppress(OSError):
            return self._is_old() and self._path.stat().st_size >= FAULTS
        return False
