"""Work that is given up at a deadline, whatever it waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from gearcache.cache.remote.protocol import Deadline, RemoteError

_Result = TypeVar("_Result")


def within(
    deadline: Deadline, label: str, work: Callable[[], _Result], give_up: Callable[[], object] = lambda: None
) -> _Result:
    """Return what `work` returns; `RemoteError` at the deadline. What it raises comes out.

    It runs in a thread: timeouts of sockets count from byte to byte, and a mount whose server is gone never answers.
    `give_up` is called at the deadline, to end what the thread waits for; else it is left to itself.
    """
    left = deadline.check(label)
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name=f"gearcache {label}")
    thread.start()
    thread.join(left)
    if thread.is_alive():
        give_up()
        raise RemoteError(label, f"it did not answer within {left:.1f} s")
    if errors:
        raise errors[0]
    return results[0]
