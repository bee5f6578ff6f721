"""Read several objects; one unreadable object does not fail the rest."""

from __future__ import annotations

from collections.abc import Sequence

from gearcache.cache.remote.engines.protocol import Deadline, Remote, RemoteError
from gearcache.cache.remote.requests.parallel import at_once


def read_each(
    remote: Remote, names: Sequence[str], limit: int, deadline: Deadline
) -> tuple[dict[str, bytes], dict[str, RemoteError]]:
    """Return the bytes of objects by name, without removed ones, and the errors of those that cannot be read.

    An object that only another user may read, or that has more than `limit` bytes, is not a fault of the tier. Raises
    `RemoteError` where none can be read, or the time is over.
    """

    def get(name: str) -> tuple[str, bytes | RemoteError | None]:
        try:
            return name, remote.get(name, limit, deadline)
        except RemoteError as error:
            return name, error

    answers = at_once(get, names)
    faults = {name: data for name, data in answers if isinstance(data, RemoteError)}
    if faults and (len(faults) == len(answers) or not deadline.left):
        raise next(iter(faults.values()))
    return {name: data for name, data in answers if isinstance(data, bytes)}, faults
