"""Detects whether a process that may hang does any work: itself, or in a child process."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

#: A process hangs if it has neither worked nor waited for a child for this many seconds.
STILL_SECONDS = 60.0
_SAMPLE_SECONDS = 1.0


class ProcessActivity:
    """The processor time of a process, read now and then. Without `/proc` the process never counts as still."""

    def __init__(self, pid: int) -> None:
        self._folder = Path("/proc", str(pid))
        self._cpu_time = self._time()
        self._last_change = self._last_sample = time.monotonic()

    def is_still(self) -> bool:
        """Whether it has done nothing for `STILL_SECONDS`, and has no child that it may wait for."""
        now = time.monotonic()
        if now < self._last_sample + _SAMPLE_SECONDS:
            return False
        self._last_sample, cpu_time = now, self._time()
        if cpu_time is None or cpu_time != self._cpu_time or self._has_children():
            self._cpu_time, self._last_change = cpu_time, now
        return now - self._last_change >= STILL_SECONDS

    def _time(self) -> tuple[str, ...] | None:
        with contextlib.suppress(OSError):
            # The name of the program, in parentheses, may contain anything; user and system time are the 14th and 15th.
            fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
            return tuple(fields[11:13])
        return None

    def _has_children(self) -> bool:
        with contextlib.suppress(OSError):
            return any((task / "children").read_text().strip() for task in (self._folder / "task").iterdir())
        return True
