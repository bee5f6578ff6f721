"""Records how a process starts, if `GEARCACHE_TRACE` names a file: key, evidence, blobs, gears, first answers.

Times are relative to `import gearcache`. The file is in the Chrome trace format, which Perfetto opens; under
`gearcache` it also has the outcomes of the calls of each method. It is written when methods give their first answers,
and, with `final` set, when the process ends. `%p` in its name stands for the process id. Without the variable nothing
is recorded, at no cost per call.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Protocol

from gearcache.events import Event, LateEvent, tell_at_once
from gearcache.interrupts import raise_interrupt
from gearcache.telemetry.spans import record_by, recorder
from gearcache.telemetry.trace_document import Span, together, trace_events
from gearcache.version import __version__

VARIABLE = "GEARCACHE_TRACE"
#: The most spans per category, the first ones: a server that runs for weeks prepares many calls.
MOST_SPANS = 2000
#: The most spans per name, so that a method that every call misses leaves room for the others; blobs and gears of equal
#: blocks share their names.
MOST_OF_A_NAME = 100
_MANY_OF_A_NAME = ("blob", "gear", "compile")
#: This many first answers are each written at once; later ones only as often as takes this share of the time.
_AT_ONCE = 8
_SHARE_OF_WRITES = 0.05
#: How long the end of the process waits for another thread that is writing.
_LONGEST_WRITE = 10.0
_LONGEST = 400
#: Events with a duration, and the field that names each.
_TIMED = {"trace": "method", "compile": "gear", "publish": "method", "fetch": "tier", "upload": "tier", "lease": "tier"}
logger = logging.getLogger("gearcache")


class Followed(Protocol):
    """An object that provides a record of the calls of a method."""

    def to_record(self) -> dict[str, Any]:
        """Return `method`, and some of the fields of `NOTHING`."""
        ...


class Recorder:
    """The spans of this process. Safe to use from threads; a forked child records nothing."""

    def __init__(self, path: str) -> None:
        # Absolute, because a program may change its working folder.
        self._path = Path(path.replace("%p", str(os.getpid()))).absolute()
        self._process = os.getpid()
        self._zero = time.perf_counter()
        self._began = time.time()
        self._spans: list[Span] = []
        self._span_counts = Counter[tuple[str, str]]()
        self._dropped = Counter[str]()
        self._last_answer = 0.0
        self._answers = 0
        self._next_write = 0.0
        self._methods: list[Followed] = []
        self._lock = threading.Lock()
        self._is_due = False
        self._is_warned = False

    def add(self, category: str, name: str, begin: float, seconds: float, thread: int = 0) -> None:
        """Record a span; `begin` is a time of `time.perf_counter`, `thread` is another thread than the present one."""
        name = name[:_LONGEST]
        most = MOST_SPANS if category in _MANY_OF_A_NAME else MOST_OF_A_NAME
        if self._span_counts[category, ""] >= MOST_SPANS or self._span_counts[category, name] >= most:
            self._dropped[category] += 1
            return
        self._span_counts[category, ""] += 1
        if name:
            self._span_counts[category, name] += 1
        self._spans.append(Span(category, name, begin - self._zero, seconds, thread or threading.get_native_id()))

    def note(self, event: Event) -> None:
        """Record the duration of an event that has just ended, in this process or in a child."""
        field = _TIMED.get(event.kind)
        if field is not None:
            ended, thread = (event.ended, event.process) if isinstance(event, LateEvent) else (time.perf_counter(), 0)
            self.add(event.kind, getattr(event, field), ended - event.seconds, event.seconds, thread)

    def follow(self, method: Followed) -> None:
        """Ask this object for its record whenever the file is written; it must not keep a model alive."""
        self._methods.append(method)

    def answered(self) -> None:
        """Note that a method has given its first answer. With many methods, not every answer writes the file."""
        now = time.perf_counter()
        self._last_answer = now - self._zero
        self._answers += 1
        if self._answers <= _AT_ONCE or now >= self._next_write:
            self.write()
            after = time.perf_counter()
            self._next_write = after + (after - now) / _SHARE_OF_WRITES

    def write(self, *, is_final: bool = False) -> None:
        """Write the file; a fault is logged once and breaks nothing."""
        if os.getpid() != self._process or not self._methods:
            return
        from gearcache.cache.files.atomic import regular_target, write_atomic

        self._is_due = True
        # The lock may be held by this thread, interrupted by a signal handler: it then writes once more.
        while self._is_due and self._lock.acquire(timeout=_LONGEST_WRITE if is_final else 0):
            try:
                self._is_due = False
                write_atomic(regular_target(self._path), json.dumps(self._document(is_final)).encode())
            except Exception as error:
                raise_interrupt(error)
                if not self._is_warned:
                    self._is_warned = True
                    logger.warning("%s: `%s` cannot be written: %s", VARIABLE, self._path, error)
            finally:
                self._lock.release()

    def _document(self, is_final: bool = False) -> dict[str, Any]:
        return {
            "displayTimeUnit": "ms",
            "traceEvents": trace_events(list(self._spans), self._process, _command()),
            "gearcache": {
                "trace": 1,
                "gearcache": __version__,
                "pid": self._process,
                "command": _command(),
                "began": round(self._began, 3),
                "seconds": round(self._last_answer, 6),
                "final": is_final,
                "dropped": sum(self._dropped.values()),
                "dropped_by_kind": dict(self._dropped),
                "methods": together([method.to_record() for method in list(self._methods)]),
            },
        }


def record_start(path: str) -> None:
    """Record this process from now on; only the first call in a process has an effect."""
    if recorder() is None:
        trace_recorder = Recorder(path)
        record_by(trace_recorder)
        tell_at_once(trace_recorder.note)
        atexit.register(trace_recorder.write, is_final=True)
        os.register_at_fork(after_in_child=stop_recording)


def stop_recording() -> None:
    """Stop recording, and leave the file to others: in a forked child, and in commands that only read."""
    record_by(None)
    tell_at_once(None)


def _command() -> str:
    """Return the command line, even if the program has changed `sys.argv`."""
    arguments = getattr(sys, "argv", None)
    texts = [word if isinstance(word, str) else repr(word) for word in arguments] if isinstance(arguments, list) else []
    return " ".join([Path(texts[0]).name, *texts[1:]] if texts else ["python"])[:_LONGEST]
