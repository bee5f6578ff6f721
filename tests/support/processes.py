"""Processes that tests have started, or that a process of theirs has."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(is_so: Callable[[], object], seconds: float = 120.0, call: Callable[[], object] = lambda: None) -> bool:
    """Wait until something is so, and call a function meanwhile; whether it came to that in time."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        call()
        time.sleep(0.03)
    return True
