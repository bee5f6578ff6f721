"""Turns: what only one thread of a process can do at a time, because torch keeps its state in globals.

That is to trace with Dynamo, to record a graph and to run Inductor in this process. Compiles in worker processes
overlap, and so do all loads and calls.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

from gearcache.ge_cache.capture.exchanged import put_back
from gearcache.ge_cache.private_torch import decompositions as private_decompositions
from gearcache.ge_cache.private_torch import fake as private_fake
from gearcache.ge_cache.private_torch import strides as private_strides
from gearcache.ge_cache.private_torch import threads as private_threads

Item = TypeVar("Item")


#: What a turn has of its own.
_OWN = (
    private_threads.own_recording,
    private_threads.own_guards,
    private_decompositions.own_decompositions,
    private_strides.own_view_strides,
    private_fake.own_answers,
)
#: Taken before Dynamo's own lock, which exists only once Dynamo was imported, and that happens in a turn.
_lock = threading.RLock()


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Be the only thread that traces or records; other threads see nothing of what is exchanged meanwhile.

    The innermost of all locks: in a turn nobody may wait for that of a method or of a key. Not to be nested.
    """
    with _lock, private_threads.compile_lock():
        put_back()  # what an interrupt has left
        with contextlib.ExitStack() as own:
            for state in _OWN:
                own.enter_context(state())
            yield


def in_turns(items: Iterable[Item]) -> Iterator[Item]:
    """Yield what an iterable gives, each item made in a turn of its own."""
    iterator = iter(items)
    while True:
        with turn():
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


def _after_fork() -> None:
    """In a forked child: let nothing wait for a thread that is not here, and undo what it had exchanged."""
    global _lock
    if not private_threads.is_owned(_lock):  # else it is this thread that traces
        _lock = threading.RLock()
        put_back()
    private_threads.free_compile_lock()


os.register_at_fork(after_in_child=_after_fork)
