"""Tells a tier which shapes this process meets, where `GEARCACHE_SHAPES` names one.

A thread of its own reads the counters that the graphs keep anyway, every ten minutes and when the process ends; no call
pays for it, and a tier that fails costs a warning. Counts of what is dropped meanwhile are kept.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from gearcache.cache.layout import SHAPES_VARIABLE as VARIABLE
from gearcache.cache.layout import Layout, resolve_root
from gearcache.cache.remote.protocol import Deadline
from gearcache.cache.remote.shapes import MOST_METHODS, MethodShapes, ProcessShapes, ShapesTier
from gearcache.cache.remote.tier import open_tiers
from gearcache.cache.remote.trust import Trust
from gearcache.cache.remote.urls import parse_urls
from gearcache.errors import CacheError, GearcacheError

#: Seconds between what is told, that a request may take, and that the end of the process waits.
INTERVAL = 600.0
REQUEST_SECONDS = 10.0
EXIT_SECONDS = 5.0

logger = logging.getLogger("gearcache")
Shape = tuple[int, ...]


class Told(NamedTuple):
    """Of which method shapes are: its name, the full one, dims, and the gears that it has over these dims."""

    method: str
    full_name: str
    dims: tuple[tuple[str, int], ...]
    gears: tuple[tuple[int | None, ...], ...]


class Source(Protocol):
    """What counts shapes: the counts of a binding, which do not go with it."""

    def shapes_told(self) -> tuple[Told, Mapping[Shape, int]]:
        """Return of which method, and calls by shape."""
        ...


class SharedShapes:
    """The counts of this process. Sources may come and go in any thread."""

    def __init__(self, tier: Callable[[], ShapesTier]) -> None:
        """`tier` is opened at the first use; what it raises is told once."""
        self._open = tier
        self._tier: ShapesTier | None = None
        self._host = sha256(socket.gethostname().encode()).hexdigest()[:16]
        self._lock = threading.Lock()
        #: By source: who makes the calls, and what was collected of it. A source goes after its owner.
        self._sources: dict[Source, tuple[weakref.ref[Any], dict[Shape, int]]] = {}
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()
        self._begin()

    def _begin(self) -> None:
        self._process = secrets.token_hex(8)
        self._sequence = 0
        self._name = ""
        self._is_told = self._has_new = False
        self._totals: dict[Told, dict[Shape, int]] = {}

    def follow(self, source: Source, owner: object) -> None:
        """Count what a source counts from now on, until its owner is gone and all that it met is collected."""
        with self._lock:
            self._sources[source] = weakref.ref(owner), {}
            self._start()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="gearcache-shapes")
            self._thread.start()

    def send(self, seconds: float = REQUEST_SECONDS) -> bool:
        """Tell the tier what is new; whether it holds all now. Raises nothing; a fault is told once."""
        try:
            with self._lock:
                self._collect()
                if not self._has_new:
                    return True
                found = self._document()
            if self._tier is None:
                self._tier = self._open()
            name = self._tier.send(found, self._name, Deadline.after(seconds))
        except Exception as error:  # of a tier, a key, or a source that is about to go
            self._tell(str(error) if isinstance(error, GearcacheError) else f"{type(error).__name__}: {error}")
            return False
        if not name:
            self._tell("the tier has no room for more: `gearcache prune --remote URL --older-than 30d` makes some")
            return False
        self._name, self._has_new = name, False
        return True

    def stop(self) -> None:
        """Tell the tier the last counts, and no more."""
        self._is_over.set()
        self.send(EXIT_SECONDS)

    def forget(self) -> None:
        """Count anew, as another process: in a child, whose thread is missing and whose parent tells what was met."""
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._tier = None
        self._collect()
        self._begin()
        self._thread = None
        if self._sources:
            self._start()

    def _run(self) -> None:
        over = self._is_over
        while not over.wait(INTERVAL):
            self.send()

    def _collect(self) -> None:
        for source, (owner, before) in list(self._sources.items()):
            is_gone = owner() is None
            try:
                told, shapes = source.shapes_told()
            except RuntimeError:  # a call changes it at this moment: the next time
                continue
            new = {shape: more for shape, calls in shapes.items() if (more := calls - before.get(shape, 0)) > 0}
            if new:
                totals = self._totals.setdefault(told, {})
                for shape, more in new.items():
                    totals[shape] = totals.get(shape, 0) + more
                self._has_new = True
            if is_gone and not new:  # nor does a call that began before it was dropped add any more
                del self._sources[source]
            else:
                self._sources[source] = owner, dict(shapes)

    def _document(self) -> ProcessShapes:
        self._sequence += 1
        methods = [
            MethodShapes(told.method, told.dims, told.gears, dict(totals), full_name=told.full_name)
            for told, totals in self._totals.items()
        ]
        busiest = sorted(methods, key=lambda each: -sum(each.shapes.values()))
        told = tuple(each for each in busiest if each.is_tellable)[:MOST_METHODS]
        return ProcessShapes(self._host, self._process, self._sequence, time.time(), told)

    def _tell(self, text: str) -> None:
        log = logger.debug if self._is_told else logger.warning
        self._is_told = True
        log("%s: the shapes that were met cannot be told: %s", VARIABLE, text)


def _tier_of_environment() -> ShapesTier:
    urls = parse_urls(os.environ.get(VARIABLE, ""), f"${VARIABLE}")
    if not urls or urls[0].read_only:
        raise CacheError(f"{urls[0].label} is read only" if urls else "it names no tier")
    (tier,) = open_tiers(urls[:1], Layout(resolve_root(None, os.environ)))
    return ShapesTier(tier, Trust.from_environment(os.environ))


_shared: SharedShapes | None = None


def follow(source: Source, owner: object) -> None:
    """Let the tier of the environment know what a source counts; `owner` makes the calls."""
    global _shared
    if _shared is None:
        _shared = SharedShapes(_tier_of_environment)
        # While threads can still be started, as clients of tiers do.
        getattr(threading, "_register_atexit", atexit.register)(_shared.stop)
        os.register_at_fork(after_in_child=_shared.forget)
    _shared.follow(source, owner)
