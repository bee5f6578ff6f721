"""Make several requests at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from gearcache.cache.remote.engines.protocol import Deadline, Remote, RemoteError
from gearcache.threads import started

#: Requests that one lookup or upload makes at once.
MOST_AT_ONCE = 8
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def at_once(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Return the result of `work` for each item, in order; the first error is raised when all have ended.

    Not a `ThreadPoolExecutor`: at process exit it accepts no more work, and it waits for its threads, however long a
    tier hangs.
    """
    item_list = list(items)
    if len(item_list) <= 1:
        return [work(item) for item in item_list]
    results: dict[int, _Result] = {}
    errors: dict[int, BaseException] = {}
    remaining = iter(enumerate(item_list))
    lock = threading.Lock()

    def run() -> None:
        while True:
            with lock:
                number, item = next(remaining, (-1, None))
            if number < 0:
                return
            try:
                results[number] = work(item)  # type: ignore[arg-type]
            except BaseException as error:
                errors[number] = error

    threads = [
        threading.Thread(target=run, daemon=True, name="gearcache-remote")
        for _ in range(min(MOST_AT_ONCE, len(item_list)))
    ]
    running_threads = [thread for thread in threads if started(thread)]
    if not running_threads:
        run()
    for thread in running_threads:
        thread.join()
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(item_list))]


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
