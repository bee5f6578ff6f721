"""Make several requests at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

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
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(item_list))]
