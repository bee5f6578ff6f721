"""Retry work that failed for a moment, the only retry loop for tiers; and an engine that retries its operations.

When a whole fleet starts at once, some connections fail for a moment.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from gearcache.cache.remote.engines.protocol import Creates, Deadline, Denied, Remote, RemoteError, TooLarge

#: Seconds before an operation is tried again.
PAUSES = (0.15, 0.6)
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


class Patient:
    """An engine that retries operations within their deadline, except a create, which may have succeeded."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self.label = remote.label
        #: How many objects arrived: a tier that sends some until a deadline is slow, and does not fail.
        self.objects_read = 0

    @property
    def creates(self) -> Creates:
        return self._remote.creates

    def get(self, name: str, limit: int, deadline: Deadline) -> bytes | None:
        data = again(lambda: self._remote.get(name, limit, deadline), deadline)
        self.objects_read += data is not None
        return data

    def size(self, name: str, deadline: Deadline) -> int | None:
        return again(lambda: self._remote.size(name, deadline), deadline)

    def put(
        self, name: str, data: bytes, deadline: Deadline, *, create: bool = False, lifetime: float | None = None
    ) -> bool:
        if create:
            return self._remote.put(name, data, deadline, create=True, lifetime=lifetime)
        return again(lambda: self._remote.put(name, data, deadline, lifetime=lifetime), deadline)

    def names(self, prefix: str, limit: int, deadline: Deadline) -> list[str]:
        return again(lambda: self._remote.names(prefix, limit, deadline), deadline)

    def delete(self, name: str, deadline: Deadline) -> None:
        again(lambda: self._remote.delete(name, deadline), deadline)


def again(work: Callable[[], _Result], deadline: Deadline) -> _Result:
    """Return the result of the first try of `work` that raises no `RemoteError`; the last try's error is raised."""
    return tried(work, PAUSES, deadline=deadline)
