"""Retry whole steps of a command where the retries of each request (`engines/retrying.py`) were not enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gearcache.cache.remote.requests.retries import tried

#: Seconds between the tries: one more try than there are pauses.
PAUSES = (0.5, 2.0)
#: Seconds that a list, or several requests at once, may take in a command.
SECONDS = 60.0
#: A step that took this long and failed is not tried again: the tier hangs.
LONG_SECONDS = 10.0
#: After this many faults in a row a command skips a tier.
MOST_FAULTS = 3
_Result = TypeVar("_Result")


def persistently(work: Callable[[], _Result]) -> _Result:
    """Return the result of `work`; where it raises `RemoteError`, try again after a pause, and raise the last error."""
    return tried(work, PAUSES, longest=LONG_SECONDS)
