"""Until when this thread may wait for others, whatever each wait has for itself: an agreement of ranks has an end."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class _Present(threading.local):
    """The moment, of `time.monotonic`, at which the waits of this thread end."""

    end = math.inf


_present = _Present()


@contextmanager
def waits_end_after(seconds: float) -> Iterator[None]:
    """Let no wait of this thread last beyond some seconds from now."""
    before = _present.end
    _present.end = min(before, time.monotonic() + seconds)
    try:
        yield
    finally:
        _present.end = before


def waiting_time(seconds: float) -> float:
    """Return how long a wait may last that has some seconds for itself."""
    return max(0.0, min(seconds, _present.end - time.monotonic()))


def are_limited() -> bool:
    """Whether waits of this thread have an end."""
    return _present.end < math.inf
