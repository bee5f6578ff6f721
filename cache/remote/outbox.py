"""Uploads in the background: a bounded queue and one thread for a process, ended within a bounded time at its exit."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable

from gearcache.threads import started

logger = logging.getLogger("gearcache")
#: Limit of waiting uploads; further ones are dropped, with a message.
MOST_WAITING = 256
#: Seconds that a process waits at its exit for its uploads.
EXIT_SECONDS = 10.0


class Outbox:
    """Runs jobs one after the other, in a thread of its own that starts with the first job."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], object]] = deque()
        self._changed = threading.Condition()
        self._is_busy = False
        self._thread: threading.Thread | None = None

    def add(self, job: Callable[[], object]) -> bool:
        """Queue a job; False where too many wait, or no thread can be started. Its exception is only logged."""
        with self._changed:
            if len(self._jobs) >= MOST_WAITING:
                return False
            if self._thread is None:
                thread = threading.Thread(target=self._run, daemon=True, name="gearcache-outbox")
                if not started(thread):
                    return False
                self._thread = thread
            self._jobs.append(job)
            self._changed.notify_all()
        return True

    def flush(self, seconds: float) -> int:
        """Wait at most this many seconds until all jobs are done; returns how many are not."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while (unfinished_count := len(self._jobs) + self._is_busy) and (
                seconds_left := deadline - time.monotonic()
            ) > 0:
                self._changed.wait(seconds_left)
        return unfinished_count

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._jobs:
                    self._changed.wait()
                job, self._is_busy = self._jobs.popleft(), True
            try:
                job()
            except Exception:
                logger.exception("an upload failed")
            finally:
                with self._changed:
                    self._is_busy = False
                    self._changed.notify_all()


_outbox = Outbox()


def outbox() -> Outbox:
    """Return the outbox of this process."""
    return _outbox


def _after_fork() -> None:
    # The thread and the waiting jobs belong to the parent.
    global _outbox
    _outbox = Outbox()


def _at_exit() -> None:
    if unfinished_count := _outbox.flush(EXIT_SECONDS):
        logger.warning(
            "%d uploads had not ended %g s after the program had; `gearcache push` sends what is missing",
            unfinished_count,
            EXIT_SECONDS,
        )


os.register_at_fork(after_in_child=_after_fork)
# Runs while threads can still be started, and also in children of `multiprocessing`, which run no `atexit`.
getattr(threading, "_register_atexit", atexit.register)(_at_exit)
