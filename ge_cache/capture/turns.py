"""Turns: work that only one thread of a process can do at a time, because torch keeps its state in globals.

Such work is tracing with Dynamo, recording a graph, and running Inductor in this process. Compiles in worker processes
overlap, and so do all loads and calls.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

from gearcache.ge_cache.capture.exchanged import put_back
from gearcache.ge_cache.private_torch import threads as private_threads
from gearcache.threads import is_owned

Item = TypeVar("Item")

#: Taken before Dynamo's own lock, which exists only once Dynamo was imported; a turn may import it.
_lock = threading.RLock()


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Be the only thread that traces or records; other threads see none of the replacements made meanwhile.

    The innermost of all locks: in a turn no code may wait for the lock of a method or of a key. Not to be nested.
    """
    private_threads.import_to_the_end(private_threads.TRACE_MODULES)
    with _lock, private_threads.compile_lock():
        from gearcache.ge_cache.private_torch.every_probe import OF_TURNS  # imports Dynamo
        from gearcache.ge_cache.private_torch.probe import listening

        put_back()  # left over from an interrupt
        with private_threads.own_guards(), private_threads.own_modes(), listening(None, OF_TURNS):
            yield


def in_turns(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items of an iterable, each made in a turn of its own."""
    iterator = iter(items)
    while True:
        with turn():
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


def _after_fork() -> None:
    """Reset a forked child: nothing may wait for a thread of the parent, and its replacements are undone."""
    global _lock
    if not is_owned(_lock):  # otherwise this very thread traces
        _lock = threading.RLock()
        put_back()
    private_threads.free_compile_lock()


os.register_at_fork(after_in_child=_after_fork)
