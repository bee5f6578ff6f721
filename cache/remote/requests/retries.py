"""Retry work that failed for a moment: the only retry loop for requests and files of shares."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from gearcache.cache.remote.engines.protocol import Deadline, Denied, RemoteError, TooLarge

_Result = TypeVar("_Result")


def may_pass(error: Exception) -> bool:
    """Return whether an error is one of a tier, which the same request need not meet again."""
    return isinstance(error, RemoteError) and not isinstance(error, (Denied, TooLarge))


def tried(
    work: Callable[[], _Result],
    pauses: Sequence[float],
    *,
    is_passing: Callable[[Exception], bool] = may_pass,
    deadline: Deadline,
) -> _Result:
    """Return the result of the first try of `work` that raises no passing error; the last try's error is raised.

    The tries are separated by `pauses`, each shortened at random by up to a half, as many hosts may see the same fault.
    No try starts beyond the deadline.
    """
    for pause in pauses:
        seconds = pause * random.uniform(0.5, 1.0)
        try:
            return work()
        except Exception as error:
            if not is_passing(error) or deadline.left <= seconds:
                raise
        time.sleep(seconds)
    return work()
