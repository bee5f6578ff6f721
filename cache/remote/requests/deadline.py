"""Run work that is abandoned at a deadline, whatever it waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from gearcache.cache.remote.engines.protocol import Deadline, Late, RemoteError
from gearcache.threads import started

#: Limit of hanging threads for a tier: a mount whose server is gone blocks a thread for ever.
MOST_HANGING = 16
_Result = TypeVar("_Result")
#: Abandoned threads, by the label of the tier; in a forked child none of them is alive.
_hanging: dict[str, list[threading.Thread]] = {}


def within(
    deadline: Deadline, label: str, work: Callable[[], _Result], give_up: Callable[[], object] = lambda: None
) -> _Result:
    """Return the result of `work`; `Late` at the deadline. Its own errors are passed on.

    It runs in a thread: timeouts of sockets count from byte to byte, and a mount whose server is gone never answers.
    `give_up` is called at the deadline, to end what the thread waits for; without it the thread is abandoned, and ends
    by its own timeouts. A tier for which `MOST_HANGING` threads wait is refused at once.
    """
    seconds = deadline.check(label)
    _hanging[label] = hanging_threads = [thread for thread in _hanging.get(label, ()) if thread.is_alive()]
    if len(hanging_threads) >= MOST_HANGING:
        raise RemoteError(label, f"{len(hanging_threads)} earlier requests still hang")
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name=f"gearcache {label}")
    if not started(thread):
        raise RemoteError(label, "no thread can be started")
    try:
        thread.join(seconds)
    except BaseException:
        give_up()
        raise
    if thread.is_alive():
        give_up()
        _hanging.setdefault(label, []).append(thread)
        raise Late(label, f"it did not answer within {seconds:.1f} s")
    if errors:
        raise errors[0]
    return results[0]
