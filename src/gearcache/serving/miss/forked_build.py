"""A build in a forked process, which has the module and the arguments in their present state.

A thread of this process would trace a module that other threads change, and would compete for the interpreter. A fork
of a process that has used OpenMP hangs when it begins a parallel region, so the child works with one thread. Its
compile workers, which are separate processes, do the long work.
"""

from __future__ import annotations

import contextlib
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
from pathlib import Path

import torch
from msgspec import Struct, field, msgpack
from msgspec.structs import asdict

from gearcache.events import Event, LateEvent, held_events, tell_at_once
from gearcache.ge_cache.private_torch.threads import is_compile_lock_free
from gearcache.ge_cache.workers.kept import KEPT
from gearcache.ge_cache.workers.program import keep_priority, watch_parent
from gearcache.threads import importing_threads

_NICE = 19
_CONNECTIONS = ("socket:", "pipe:", "anon_inode:")
#: Events that this process reports as its own; graphs that the child has loaded are not loaded here.
_REPORTED_KINDS = ("trace", "compile", "compile_failed", "publish", "fetch", "upload", "lease")

#: A process hangs if it has neither worked nor waited for a child for this many seconds.
STILL_SECONDS = 60.0
_SAMPLE_SECONDS = 1.0


class Report(Struct, frozen=True):
    """The result of a build: `error` is empty if the graphs are stored."""

    #: The class of the error.
    kind: str = ""
    error: str = ""
    events: list[Event] = field(default_factory=list)
    #: Levels and texts of the log records.
    logged: list[tuple[int, str]] = field(default_factory=list)


class ForkedBuild:
    """A child that runs `work` at the lowest priority and reports. It ends with this process."""

    def __init__(self, work: Callable[[], None], seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._seconds = seconds
        parent = os.getpid()
        with contextlib.ExitStack() as undo, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about threads; see above
            self._read, write = os.pipe()
            undo.callback(_close, self._read, write)
            life_line_end, self._life_line = os.pipe()
            undo.callback(_close, life_line_end, self._life_line)
            self._pid = os.fork()
            undo.pop_all()
        if self._pid == 0:
            os.close(self._read)
            os.close(self._life_line)
            _run(work, write, life_line_end, parent)
        os.close(write)
        os.close(life_line_end)
        os.set_blocking(self._read, False)
        self._activity = ProcessActivity(self._pid)
        self._received = b""

    def poll(self) -> Report | None:
        """Return the report; None while the build is running. It must not be called after it returned a report."""
        with contextlib.suppress(BlockingIOError):
            while self._read >= 0 and (data := os.read(self._read, 1 << 16)):
                self._received += data
            return self._end(self._read_report())
        if time.monotonic() >= self._deadline:
            return self._end(Report("TimeoutError", f"it had not ended after {self._seconds:g} s and was stopped"))
        if self._activity.is_still():
            return self._end(Report("TimeoutError", f"it did nothing for {STILL_SECONDS:g} s and was stopped"))
        return None

    def _read_report(self) -> Report:
        with contextlib.suppress(Exception):
            plain = msgpack.decode(self._received)
            child = {"process": self._pid}
            events: list[Event] = [
                LateEvent(**event | {"gears": tuple(event["gears"])} | child) for event in plain["events"]
            ]
            return Report(plain["kind"], plain["error"], events, [tuple(item) for item in plain["logged"]])
        return Report("RuntimeError", "the process of the build has ended without a report")

    def _end(self, report: Report) -> Report:
        for descriptor in (self._read, self._life_line):  # the rest of its process group then ends itself
            if descriptor >= 0:
                os.close(descriptor)
        self._read = self._life_line = -1
        for kill in (os.killpg, os.kill):  # it has no group yet where a handler of the program hangs in the fork
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # another part of the program waits for all children
            os.waitpid(self._pid, 0)
        return report


class ProcessActivity:
    """The processor time of a process, read now and then. Without `/proc` the process never counts as still."""

    def __init__(self, pid: int) -> None:
        self._folder = Path("/proc", str(pid))
        self._cpu_time = self._time()
        self._last_change = self._last_sample = time.monotonic()

    def is_still(self) -> bool:
        """Whether it has done nothing for `STILL_SECONDS`, and has no child that it may wait for."""
        now = time.monotonic()
        if now < self._last_sample + _SAMPLE_SECONDS:
            return False
        self._last_sample, cpu_time = now, self._time()
        if cpu_time is None or cpu_time != self._cpu_time or self._has_children():
            self._cpu_time, self._last_change = cpu_time, now
        return now - self._last_change >= STILL_SECONDS

    def _time(self) -> tuple[str, ...] | None:
        with contextlib.suppress(OSError):
            # The name of the program, in parentheses, may contain anything; user and system time are the 14th and 15th.
            fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
            return tuple(fields[11:13])
        return None

    def _has_children(self) -> bool:
        with contextlib.suppress(OSError):
            return any((task / "children").read_text().strip() for task in (self._folder / "task").iterdir())
        return True


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def can_fork() -> bool:
    """Whether no other thread imports a module or compiles with Dynamo: the child could never get such a lock."""
    if importing_threads() - {threading.get_ident()}:
        return False
    return is_compile_lock_free()


def _close_connections(own: set[int]) -> None:
    """Close sockets and pipes that the child does not need: the process at the other end would wait for it."""
    with contextlib.suppress(OSError):
        for link in list(Path("/proc/self/fd").iterdir()):
            number = int(link.name)
            with contextlib.suppress(OSError):
                if number > 2 and number not in own and str(link.readlink()).startswith(_CONNECTIONS):
                    os.close(number)
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)


class _Log(logging.Handler):
    """Keeps log records for the parent: handlers may belong to threads that do not exist here."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelno, record.getMessage()))


def _run(work: Callable[[], None], write: int, life_line: int, parent: int) -> None:
    """Work as the child, report, and end; never returns."""
    try:
        log = _enter(write, life_line, parent)
        kind = error = ""
        timed_events: list[tuple[Event, float]] = []
        tell_at_once(lambda event: timed_events.append((event, time.perf_counter())))
        with held_events():
            try:
                work()
            except BaseException as raised:
                kind, error = type(raised).__name__, str(raised)
                if os.environ.get("GEARCACHE_STRICT", "0") not in ("", "0", "false"):
                    traceback.print_exc()
            reported = [
                asdict(event) | {"ended": ended} for event, ended in timed_events if event.kind in _REPORTED_KINDS
            ]
        data = msgpack.encode({"kind": kind, "error": error, "events": reported, "logged": log.lines})
        while data:
            data = data[os.write(write, data) :]
    finally:
        KEPT.end()
        os._exit(0)


def _enter(write: int, life_line: int, parent: int) -> _Log:
    _close_connections({write, life_line})
    gc.freeze()  # no object of the parent is collected here: its finalizer would run twice
    os.setsid()
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    keep_priority()
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):  # a handler of the parent
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)  # as in compile workers: it survives signals to its own group
    signal.set_wakeup_fd(-1)
    threading.Thread(target=watch_parent, args=(parent, life_line), daemon=True).start()
    torch.set_num_threads(1)
    os.environ["GEARCACHE_PROGRESS"] = "0"
    logger, log = logging.getLogger("gearcache"), _Log()
    logger.handlers, logger.propagate = [log], False
    sys.stdin = None
    return log
