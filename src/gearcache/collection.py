"""Python's garbage collector during a load, and during a compile."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Own(threading.local):
    """How often the present thread has the collector paused, and how many compiles it is in."""

    pauses = 0
    compiles = 0


_own = _Own()
_lock = threading.Lock()
_pauses = 0
_was_enabled = False
#: Of objects that a compile makes before the collector looks at them.
_RARELY = 50_000
_compiles = 0
_thresholds = (0, 0, 0)


@contextmanager
def paused_collection() -> Iterator[None]:
    """Keep the collector from walking the user's whole heap because a load makes many small objects.

    One full pass over a process with transformers loaded takes 0.27 s, ten times a whole relaunch. Several threads may
    load at once: the collector works again when the last one is done.
    """
    pauses = _own.pauses
    try:  # from the first line on, as a signal handler may raise within it
        _count(1)
        yield
    finally:
        _count(pauses - _own.pauses)


@contextmanager
def uncollected_import() -> Iterator[None]:
    """Keep the collector from an import: it makes many objects, of which none is garbage.

    A full pass over what torch holds takes longer than an import of gearcache, and a quarter of one of Inductor. What
    was made moves to the oldest generation without a pass; not in a program that has frozen objects (`gc.freeze`),
    which this would thaw.
    """
    with paused_collection():
        yield
        if gc.get_freeze_count() == 0:
            gc.freeze()
            gc.unfreeze()


@contextmanager
def rare_collection() -> Iterator[None]:
    """Let the collector work during a compile, which takes long and makes much garbage, unless others load.

    It comes rarely: with Python's thresholds it takes a tenth of the time of a trace, as it walks the user's whole heap
    twice.
    """
    pauses, compiles = _own.pauses, _own.compiles
    try:
        _count(-pauses)
        _count_compile(1)
        yield
    finally:
        _count_compile(compiles - _own.compiles)
        _count(pauses - _own.pauses)


def _count_compile(change: int) -> None:
    global _compiles, _thresholds
    with _lock:
        previous, _compiles = _compiles, _compiles + change
        _own.compiles += change
        first, second, third = gc.get_threshold()
        if previous == 0 < _compiles and 0 < first < _RARELY:
            _thresholds = (first, second, third)
            gc.set_threshold(_RARELY, second, third)
        elif previous > 0 == _compiles and first == _RARELY and _thresholds[0]:
            gc.set_threshold(*_thresholds)
            _thresholds = (0, 0, 0)


def _count(change: int) -> None:
    global _pauses, _was_enabled
    with _lock:
        previous, _pauses = _pauses, _pauses + change
        _own.pauses += change
        if previous == 0 and _pauses > 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        elif previous > 0 and _pauses == 0 and _was_enabled:
            gc.enable()


def _after_fork() -> None:
    """In a forked child, forget the pauses and compiles of threads that are not here."""
    _lock._at_fork_reinit()  # type: ignore[attr-defined]
    pauses, compiles = _own.pauses, _own.compiles
    _count(pauses - _pauses)
    _count_compile(compiles - _compiles)
    _own.pauses, _own.compiles = pauses, compiles


os.register_at_fork(after_in_child=_after_fork)
