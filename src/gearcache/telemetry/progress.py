"""Shows progress while gears compile: a line with the reason and the place, a bar on a terminal, and log lines.

Another line says that a call waits for a process that compiles the same. `GEARCACHE_PROGRESS=0` turns bar and lines
off. The bar shows the current step and its duration; without a terminal, further lines report it from time to time.
"""

from __future__ import annotations

import abc
import contextlib
import logging
import sys
import threading
import time
from types import TracebackType
from typing import Any, TypeVar

from gearcache.terminal import is_drawable, print_progress, shows_progress
from gearcache.threads import started

logger = logging.getLogger("gearcache")
_Shown = TypeVar("_Shown", bound="_Display")
#: Labels for the stages of compilers. Stages without a gear occur once for a worker, or for a host.
_STAGES = {
    "trace": "tracing",
    "start": "starting a compile worker",
    "import": "importing Inductor",
    "headers": "compiling C++ runtime headers, once per host",
    "begin": "reading",
    "search": "finding repeats in",
    "lower": "generating code for",
    "compile": "compiling",
}
_SHARED_STAGES = ("trace", "start", "import", "headers")
#: The share of a gear's work that is done when a stage begins: a guess, so that the bar moves within a gear.
_SHARES = {"start": 0.02, "import": 0.05, "headers": 0.1, "begin": 0.2, "search": 0.2, "lower": 0.3, "compile": 0.5}
#: Without a terminal, a line reports the progress after this many seconds, then after twice as many, and so on.
_FIRST_BEAT, _LAST_BEAT = 10.0, 60.0
#: A shorter wait prints nothing, nor, without a terminal, a build that takes less time, as with backend `eager`.
_SILENT_SECONDS = 2.0
#: The most characters of the reason, which may name many values.
_WHY_LETTERS = 300


class _Display(abc.ABC):
    """What is shown as long as a `with` lasts."""

    def __enter__(self: _Shown) -> _Shown:
        try:
            self.start()
        except BaseException:  # of a signal handler: without a `with`, nobody else would stop the threads
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @abc.abstractmethod
    def start(self) -> None: ...

    @abc.abstractmethod
    def end(self) -> None: ...


class WaitLine(_Display):
    """Prints one line to stderr if the wait is long; `GEARCACHE_PROGRESS=0` leaves it to the log."""

    def __init__(self, method: str, timeout: float) -> None:
        """`timeout`: seconds after which the call waits no longer."""
        self._method, self._timeout = method, timeout
        self._timer = threading.Timer(_SILENT_SECONDS, self._print)
        self._timer.daemon = True

    def start(self) -> None:
        """Record that the wait begins."""
        started(self._timer)

    def end(self) -> None:
        """Record that the wait is over."""
        self._timer.cancel()

    def _print(self) -> None:
        limit = f"{self._timeout:g} s at most"
        line = f"another process or thread of this host compiles `{self._method}`: waiting for its graphs, {limit}"
        logger.info("%s", line)
        if shows_progress():
            print_progress(line)


class BuildProgress(_Display):
    """One build of a method. Called from several threads."""

    def __init__(self, method: str, gears: int, *, why: str = "", place: str = "") -> None:
        """`why` no stored graph serves the call, and the `place` of the new graphs; "" if they cannot be stored."""
        self._method, self._why, self._place = method, why, place
        self._gears = gears
        self._done = 0
        #: When the compile of each gear began.
        self._begin_times: dict[str, float] = {}
        self._line = threading.Timer(_SILENT_SECONDS, self._print_start)
        self._line.daemon = True
        self._bar: Any = None
        #: The stage of each gear in progress, and when it began.
        self._stages: dict[str, tuple[str, float]] = {}
        self._failed = 0
        self._is_traced = self._has_headers = False
        self._created = time.monotonic()
        #: When the last gear in progress ended, if none is in progress.
        self._idle = self._created
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def start(self) -> None:
        """Record that the build begins."""
        if not shows_progress():
            return
        started(self._line)
        if is_drawable(sys.stderr):
            from gearcache.telemetry.progress_bar import progress_bar

            self._bar = progress_bar(self._method, lambda: f"{self._done}/{self._gears}", self._step)
            with contextlib.suppress(OSError, RuntimeError, ValueError):  # the terminal is gone, or no thread starts
                self._bar.start()
        if self._bar is None:
            started(threading.Thread(target=self._beat, daemon=True))

    def end(self) -> None:
        """Record that the build is over."""
        self._line.cancel()
        self._ended.set()
        if self._bar is not None:
            with contextlib.suppress(OSError, RuntimeError, ValueError):
                self._bar.stop()

    def update(self, gear: str, stage: str) -> None:
        """Record that a gear entered a stage."""
        now = time.monotonic()
        with self._lock:
            self._is_traced = True
            if stage != "wait":
                self._begin_times.setdefault(gear, now)
                self._stages[gear] = stage, now
            if stage in ("done", "failed"):
                self._done += 1
                self._failed += stage == "failed"
                self._stages.pop(gear, None)
                self._idle = now
            done = self._done
            tells_headers = stage == "headers" and not self._has_headers
            self._has_headers |= tells_headers
        self._draw()
        if tells_headers:
            logger.info("%s: %s", self._method, _STAGES["headers"])
        if stage in ("done", "failed"):
            message = "%s: gear %s %s after %.1f s (%d of %d)"
            logger.info(message, self._method, gear, stage, now - self._begin_times[gear], done, max(done, self._gears))
        else:
            logger.debug("%s: gear %s: %s", self._method, gear, stage)

    def extend(self, gears: int) -> None:
        """Record that more gears will be compiled than was known at first."""
        with self._lock:
            self._gears += gears
        self._draw()

    def _step(self) -> str:
        """Return the current step and its duration; of several gears, that of the one that is in its step longest."""
        now = time.monotonic()
        with self._lock:
            busy = sorted((since, gear, stage) for gear, (stage, since) in self._stages.items())
            is_over = self._done >= self._gears or self._ended.is_set()
        if not busy and is_over:
            return f"{self._failed} failed" if self._failed else ""
        since, gear, stage = busy[0] if busy else (self._idle, "", "trace")
        step = f"{_STAGES.get(stage, stage)}: {int(now - since)} s"
        if stage in _SHARED_STAGES:
            return step
        others = f" and {len(busy) - 1} more" if len(busy) > 1 else ""
        return f"{step}{others}, {gear}"

    def _draw(self) -> None:
        """Show the share of the work that is done: finished gears, finished stages of others, the trace."""
        if self._bar is not None:
            with self._lock:
                parts = sum(_SHARES.get(stage, 0.0) for stage, _ in self._stages.values())
                done = (self._done + parts + 0.3 * self._is_traced) / (self._gears + 0.3)
            self._bar.update(self._bar.task_ids[0], completed=done)

    def _beat(self) -> None:
        wait = _FIRST_BEAT
        while not self._ended.wait(wait):
            wait = min(2 * wait, _LAST_BEAT)
            print_progress(f"`{self._method}`: {self._done} of {self._gears} done; {self._step()}")

    def _print_start(self) -> None:
        graphs = "a graph" if self._gears == 1 else f"{self._gears} graphs"
        target = f"to be stored in `{self._place}`" if self._place else "for this process alone"
        is_long = len(self._why) > _WHY_LETTERS
        why = f": {self._why[:_WHY_LETTERS]}{'…' if is_long else ''}" if self._why else ""
        line = f"compiling {graphs} of `{self._method}`, {target}{why}"
        if self._bar is None:
            print_progress(line)
            return
        with contextlib.suppress(AttributeError, OSError, ValueError):  # the stream may be closed by now
            self._bar.console.print(f"gearcache: {line}", markup=False, highlight=False, soft_wrap=True)
