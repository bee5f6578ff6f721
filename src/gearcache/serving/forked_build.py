"""A build in a process of its own: a fork, which has the module and the arguments as they are at this moment.

A thread of this process would trace a module that other threads change meanwhile, and would take the interpreter from
them. A fork of a process that has used OpenMP hangs where it begins a parallel region, so the child works with one
thread; what takes long is done by its compile workers, which are processes of their own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import msgpack
import torch

from gearcache.events import Event, held_events
from gearcache.ge_cache.workers.program import watch_parent

_NICE = 19
_POLL_SECONDS = 0.02
#: Events that this process is told of as if they were its own; what the child has loaded is not loaded here.
_TOLD = ("trace", "compile", "compile_failed", "publish")


@dataclass(frozen=True)
class Report:
    """What came of a build: empty `error` where the graphs are stored."""

    #: The class of the error.
    kind: str = ""
    error: str = ""
    events: list[Event] = field(default_factory=list)
    #: Levels and texts of what was logged.
    logged: list[tuple[int, str]] = field(default_factory=list)


class ForkedBuild:
    """A child that runs `work`, at the lowest priority, and reports. It ends with this process."""

    def __init__(self, work: Callable[[], None], seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._seconds = seconds
        self._parent = os.getpid()
        self._read, write = os.pipe()
        held, self._life_line = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads; see above
            try:
                self._pid = os.fork()
            except BaseException:
                for descriptor in (self._read, write, held, self._life_line):
                    os.close(descriptor)
                raise
        if self._pid == 0:
            os.close(self._read)
            os.close(self._life_line)
            _run(work, write, held, self._parent)
        os.close(write)
        os.close(held)
        os.set_blocking(self._read, False)
        self._received = b""

    @property
    def is_here(self) -> bool:
        """Whether it was started by this process, and not by the one that this was forked from."""
        return self._parent == os.getpid()

    def poll(self) -> Report | None:
        """Return what came of it; None while it is under way. To be called once after that no more."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._read, 1 << 16):
                self._received += data
            return self._ended(self._reported())
        if time.monotonic() < self._deadline:
            return None
        return self._ended(Report("TimeoutError", f"it had not ended after {self._seconds:g} s and was stopped"))

    def wait(self) -> Report:
        """Return what came of it when it has ended."""
        while (report := self.poll()) is None:
            time.sleep(_POLL_SECONDS)
        return report

    def _reported(self) -> Report:
        with contextlib.suppress(Exception):
            plain = msgpack.unpackb(self._received, raw=False)
            events = [Event(**event | {"gears": tuple(event["gears"])}) for event in plain["events"]]
            return Report(plain["kind"], plain["error"], events, [tuple(item) for item in plain["logged"]])
        return Report("RuntimeError", "the process of the build has ended without a report")

    def _ended(self, report: Report) -> Report:
        os.close(self._read)
        os.close(self._life_line)  # whatever is left of its group ends itself
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # another part of the program waits for all children
            os.waitpid(self._pid, 0)
        return report


class _Log(logging.Handler):
    """Keeps what is logged, for the parent: handlers may belong to threads that are not here."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelno, record.getMessage()))


def _run(work: Callable[[], None], write: int, life_line: int, parent: int) -> None:
    """Work as the child, report, and end; never returns."""
    try:
        log = _enter(life_line, parent)
        kind = error = ""
        with held_events() as events:
            try:
                work()
            except BaseException as raised:
                kind, error = type(raised).__name__, str(raised)
                if os.environ.get("GEARCACHE_STRICT", "0") not in ("", "0", "false"):
                    traceback.print_exc()
            told = [dataclasses.asdict(event) for event in events if event.kind in _TOLD]
        data = msgpack.packb({"kind": kind, "error": error, "events": told, "logged": log.lines}, use_bin_type=True)
        while data:
            data = data[os.write(write, data) :]
    finally:
        os._exit(0)


def _enter(life_line: int, parent: int) -> _Log:
    gc.freeze()  # nothing that the parent has is collected here: it would run finalizers twice
    os.setsid()
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)  # as compile workers do: it survives what it sends to its group
    signal.set_wakeup_fd(-1)
    threading.Thread(target=watch_parent, args=(parent, life_line), daemon=True).start()
    torch.set_num_threads(1)
    os.environ["GEARCACHE_PROGRESS"] = "0"
    logger, log = logging.getLogger("gearcache"), _Log()
    logger.handlers, logger.propagate = [log], False
    sys.stdin = None
    return log
