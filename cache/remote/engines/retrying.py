"""An engine that retries operations: when a whole fleet starts at once, some connections fail for a moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gearcache.cache.remote.engines.protocol import Creates, Deadline, Remote
from gearcache.cache.remote.requests.retries import tried

#: Seconds before an operation is tried again.
PAUSES = (0.15, 0.6)
_Result = TypeVar("_Result")


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
