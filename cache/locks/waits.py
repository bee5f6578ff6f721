"""Limit how long this thread waits for others, whatever a single wait allows: an agreement of ranks has a deadline."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


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
