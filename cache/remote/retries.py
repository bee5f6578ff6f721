"""Trying again what failed for a moment: the one way in which requests, steps of commands and files of shares do it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from gearcache.cache.remote.protocol import Deadline, RemoteError

_Result = TypeVar("_Result")


def _is_of_a_tier(error: Exception) -> bool:
    return isinstance(error, RemoteError)


def tried(
    work: Callable[[], _Result],
    pauses: Sequence[float],
    *,
    is_passing: Callable[[Exception], bool] = _is_of_a_tier,
    deadline: Deadline | None = None,
    longest: float = float("inf"),
) -> _Result:
    """Return what `work` returns, of the first try that raises no passing error; that of the last try comes out.

    Between the tries lie `pauses`, each shorter by up to a half, as many hosts may have met the same fault. None is
    made beyond the deadline, nor after a try that took `longest` seconds: who hangs will hang again.
    """
    for pause in pauses:
        begin, seconds = time.monotonic(), pause * random.uniform(0.5, 1.0)
        try:
            return work()
        except Exception as error:
            is_over = deadline is not None and deadline.left <= seconds
            if not is_passing(error) or is_over or time.monotonic() - begin >= longest:
                raise
        time.sleep(seconds)
    return work()
