"""Determines when this process started."""

from __future__ import annotations

import os
import time
from pathlib import Path

_IMPORTED = time.time()
#: Index of the start in `/proc/self/stat`, after the program's name: ticks since the host started.
_FIELD = 19


def process_start() -> float:
    """Return when this process started, or a little later, in seconds since the epoch."""
    try:
        fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
        ticks = int(fields[_FIELD])
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
        start = time.time() - (uptime - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):  # not on Linux
        return _IMPORTED
    return start if ticks > 0 else _IMPORTED
