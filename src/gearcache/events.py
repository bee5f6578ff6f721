"""Events of gearcache: lookups, compiles, loads, publishes and faults, each with its numbers.

    remove = gearcache.add_listener(lambda event: print(event))

Listeners run in the thread of the event, in the order in which they were added. They may call cached methods: events
of a call arrive when the call is ready to run, and the thread holds no lock of gearcache. Calls of compiled graphs do
not make events, because they are too frequent and must cost nothing: `.stats.gears` counts them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from msgspec import Struct

from gearcache.interrupts import raise_interrupt
from gearcache.threads import freed_in_forks

logger = logging.getLogger("gearcache")

Kind = Literal[
    "hit", "miss", "trace", "compile", "compile_failed", "load", "publish", "fetch", "upload", "lease", "fault"
]

KINDS: dict[str, str] = {
    "hit": "a lookup found stored variants that serve the call; `gears` are those that were loaded",
    "miss": "a lookup found none; `reason` is one of `MISS_REASONS`, `detail` says what differed",
    "trace": "a method was captured; `seconds`",
    "compile": "one gear was compiled; `gear`, `seconds`, `bytes` of its artifact",
    "compile_failed": "one gear could not be compiled; `gear`, `detail`",
    "load": "gears were made callable; `gears`, `seconds` of reading, verifying, checking and loading, `bytes` read",
    "publish": "an entry was written; `seconds`, `bytes` of its blobs",
    "fetch": "stored gears came from a tier beyond this host; `tier`, `gears`, `seconds`, `bytes` of their blobs",
    "upload": "an entry was sent to a tier; `tier`, `seconds`, `bytes`, 0 where the tier had all of it",
    "lease": "hosts agreed who compiles; `tier`, `seconds` of waiting, `detail`: `held` by this process, or `waited`",
    "fault": "the cache, or a `tier` of it, could not be used and was worked around; `detail`",
}

MISS_REASONS: dict[str, str] = {
    "absent": "no entry with this key",
    "corrupt": "the entry's manifest or a blob was damaged",
    "unreadable": "the entry could not be read",
    "other version": "the entry was written by another format version",
    "unsigned": "the entry does not carry the signature that `GEARCACHE_HMAC_KEY_FILE` asks for",
    "source": "traced code was edited",
    "evidence": "an attribute, global or type that the trace depended on is another",
    "arguments": "no stored variant takes such arguments",
    "unloadable": "the artifact could not be loaded on this host",
}


class Event(Struct, frozen=True):
    """One thing that happened; which fields are set depends on `kind`, see `KINDS`. Times are in seconds."""

    kind: Kind
    method: str
    entry: str = ""
    gear: str = ""
    gears: tuple[str, ...] = ()
    reason: str = ""
    detail: str = ""
    tier: str = ""
    seconds: float = 0.0
    bytes: int = 0
    #: The cache, where the event is of a lookup in one.
    folder: str = ""


class LateEvent(Event, frozen=True):
    """An event of another process that worked for this one, reported later; `ended` is of `time.perf_counter`."""

    ended: float = 0.0
    process: int = 0


Listener = Callable[[Event], object]

_listeners: tuple[Listener, ...] = ()
#: Called when an event happens, also inside of `held_events`; it must not call gearcache.
_immediate_listener: Listener | None = None
_lock = freed_in_forks(threading.RLock())


class _Held(threading.local):
    """The events of this thread that wait for the end of `held_events`; None where listeners get them at once."""

    events: list[Event] | None = None


_delayed = _Held()


def add_listener(listener: Listener) -> Callable[[], None]:
    """Call `listener(event)` for every event of this process from now on; returns a function that ends this.

    An exception of a listener is logged and never breaks a call; the listener stays. That of a signal handler which
    interrupts a listener comes out of the call. `TypeError` if it is not callable.
    """
    global _listeners
    if not callable(listener):
        raise TypeError(f"add_listener takes a function of one event, not a {type(listener).__name__}")

    # An object of its own, so that a function that was added twice is removed once.
    def call_listener(event: Event) -> object:
        return listener(event)

    with _lock:
        _listeners = (*_listeners, call_listener)

    def remove() -> None:
        global _listeners
        with _lock:
            _listeners = tuple(item for item in _listeners if item is not call_listener)

    return remove


@contextmanager
def held_events() -> Iterator[list[Event]]:
    """Delay the events of this thread until the end of the block; yields them."""
    outer, events = _delayed.events, list[Event]()
    try:
        _delayed.events = events
        yield events
    finally:
        _delayed.events = outer
        for event in events:
            _pass_on(event)


def tell_at_once(listener: Listener | None) -> None:
    """Set the function that gets each event when it happens, before all listeners; None removes it."""
    global _immediate_listener
    _immediate_listener = listener


def emit(event: Event) -> None:
    """Pass an event to all listeners, at the end of `held_events`."""
    if _immediate_listener is not None:
        _immediate_listener(event)
    _pass_on(event)


def _pass_on(event: Event) -> None:
    if _delayed.events is not None:
        _delayed.events.append(event)
        return
    for listener in _listeners:
        try:
            listener(event)
        except Exception as error:
            raise_interrupt(error)
            logger.exception("a listener failed on the event %r", event)
