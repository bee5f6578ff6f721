"""Python's garbage collector during a load."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Pauses(threading.local):
    """How often the present thread has the collector paused."""

    own = 0


_thread_pauses = _Pauses()
_lock = threading.Lock()
_pauses = 0
_was_enabled = False


@contextmanager
def paused_collection() -> Iterator[None]:
    """Keep the collector from walking the user's whole heap because a load makes many small objects.

    One full pass over a process with transformers loaded takes 0.27 s, ten times a whole relaunch. Several threads may
    load at once: the collector works again when the last one is done.
    """
    _count(1)
    try:
        yield
    finally:
        _count(-1)


@contextmanager
def resumed_collection() -> Iterator[None]:
    """Let the collector work during a compile, which takes long and makes much garbage, unless others load."""
    own = _thread_pauses.own
    _count(-own)
    try:
        yield
    finally:
        _count(own)


def _count(change: int) -> None:
    global _pauses, _was_enabled
    with _lock:
        previous, _pauses = _pauses, _pauses + change
        _thread_pauses.own += change
        if previous == 0 and _pauses > 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        elif previous > 0 and _pauses == 0 and _was_enabled:
            gc.enable()


def _after_fork() -> None:
    """In a forked child, forget the pauses of threads that are not here."""
    global _lock
    _lock, own = threading.Lock(), _thread_pauses.own
    _count(own - _pauses)
    _thread_pauses.own = own


os.register_at_fork(after_in_child=_after_fork)
