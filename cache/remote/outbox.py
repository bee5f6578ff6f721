"""Uploads in the background: a bounded queue and one thread for a process, ended within a bounded time at its exit."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from bisect import insort
from collections.abc import Callable
from operator import itemgetter
from typing import TypeAlias

from gearcache.threads import started

logger = logging.getLogger("gearcache")
#: Limit of waiting uploads; further ones are dropped, with a message.
MOST_WAITING = 256
#: Seconds that a process waits at its exit for its uploads.
EXIT_SECONDS = 10.0
#: An upload; it returns in how many seconds it is to be tried again, or None.
Job: TypeAlias = Callable[[], "float | None"]


class Outbox:
    """Runs jobs one after the other, in a thread of its own that starts with the first job.

    A job that is to be tried again rests meanwhile, and holds up no other.
    """

    def __init__(self) -> None:
        #: Jobs with the `time.monotonic` from which on each may run, the next one first.
        self._jobs: list[tuple[float, Job]] = []
        self._changed = threading.Condition()
        self._is_busy = False
        self._thread: threading.Thread | None = None

    def add(self, job: Job) -> bool:
        """Queue a job; False where too many wait, or no thread can be started. Its exception is only logged."""
        with self._changed:
            if len(self._jobs) >= MOST_WAITING:
                return False
            if self._thread is None:
                thread = threading.Thread(target=self._run, daemon=True, name="gearcache-outbox")
                if not started(thread):
                    return False
                self._thread = thread
            insort(self._jobs, (0.0, job), key=itemgetter(0))
            self._changed.notify_all()
        return True

    def flush(self, seconds: float) -> int:
        """Wait at most this many seconds until all jobs are done or rest; returns how many are not done."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while (self._is_busy or self._seconds_to_next() == 0.0) and (
                seconds_left := deadline - time.monotonic()
            ) > 0:
                self._changed.wait(seconds_left)
            return len(self._jobs) + self._is_busy

    def left_text(self, seconds: float) -> str:
        """Return what is left after waiting this many seconds, in words; empty if nothing is."""
        now = time.monotonic()
        with self._changed:
            resting = sum(begin > now for begin, _ in self._jobs)
            unfinished = len(self._jobs) - resting + self._is_busy
        texts = []
        if unfinished:
            texts.append(f"{_uploads(unfinished)} had not ended {seconds:g} s after the program had")
        if resting:
            texts.append(f"{_uploads(resting)} {'waits' if resting == 1 else 'wait'} for a tier that failed")
        return ", ".join(texts)

    def _run(self) -> None:
        while True:
            with self._changed:
                while (seconds := self._seconds_to_next()) != 0.0:
                    self._changed.wait(seconds)
                (_, job), self._is_busy = self._jobs.pop(0), True
            pause = None
            try:
                pause = job()
            except Exception:
                logger.exception("an upload failed")
            finally:
                with self._changed:
                    if pause is not None:
                        insort(self._jobs, (time.monotonic() + pause, job), key=itemgetter(0))
                    self._is_busy = False
                    self._changed.notify_all()

    def _seconds_to_next(self) -> float | None:
        """Return how long the next job rests, 0 for one that may run; None without jobs."""
        return max(0.0, self._jobs[0][0] - time.monotonic()) if self._jobs else None


def _uploads(number: int) -> str:
    return "1 upload" if number == 1 else f"{number} uploads"


_outbox = Outbox()


def outbox() -> Outbox:
    """Return the outbox of this process."""
    return _outbox


def _after_fork() -> None:
    # The thread and the waiting jobs belong to the parent.
    global _outbox
    _outbox = Outbox()


def _at_exit() -> None:
    _outbox.flush(EXIT_SECONDS)
    if text := _outbox.left_text(EXIT_SECONDS):
        logger.warning("%s; `gearcache push` sends what is missing", text)


os.register_at_fork(after_in_child=_after_fork)
# Runs while threads can still be started, and also in children of `multiprocessing`, which run no `atexit`.
getattr(threading, "_register_atexit", atexit.register)(_at_exit)
