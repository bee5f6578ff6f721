"""Shows progress while gears compile: a line with the reason and the place, a bar on a terminal, and log lines.

`GEARCACHE_PROGRESS=0` turns bar and line off. The bar shows the current step and its duration; without a terminal,
further lines report it from time to time.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gearcache.telemetry.progress_line import SHARED_STAGES, SHARES, STAGES, State, fitted
from gearcache.terminal import is_drawable, print_progress, shows_progress
from gearcache.threads import started

if TYPE_CHECKING:
    from rich.text import Text

logger = logging.getLogger("gearcache")
#: Without a terminal, a line reports the progress after this many seconds, then after twice as many, and so on.
_FIRST_BEAT, _LAST_BEAT = 10.0, 60.0
_REFRESHES = 4  # per second
#: Without a terminal, a build that takes less time, as with backend `eager`, prints nothing.
_SILENT_SECONDS = 2.0
#: The most characters of the reason, which may name many values.
_WHY_LETTERS = 300


class BuildProgress:
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

    def __enter__(self) -> BuildProgress:
        try:
            self._start()
        except BaseException:  # of a signal handler: without a `with`, nobody else would stop the threads
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        if not shows_progress():
            return
        started(self._line)
        if is_drawable(sys.stderr):
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            self._bar = Live(
                get_renderable=lambda: self._drawn(console.width), console=console, refresh_per_second=_REFRESHES
            )
            with contextlib.suppress(OSError, RuntimeError, ValueError):  # the terminal is gone, or no thread starts
                self._bar.start(refresh=True)
        if self._bar is None:
            started(threading.Thread(target=self._beat, daemon=True))

    def _stop(self) -> None:
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
        if tells_headers:
            logger.info("%s: %s", self._method, STAGES["headers"])
        if stage in ("done", "failed"):
            message = "%s: gear %s %s after %.1f s (%d of %d)"
            logger.info(message, self._method, gear, stage, now - self._begin_times[gear], done, max(done, self._gears))
        else:
            logger.debug("%s: gear %s: %s", self._method, gear, stage)

    def extend(self, gears: int) -> None:
        """Record that more gears will be compiled than was known at first."""
        with self._lock:
            self._gears += gears

    def _state(self) -> State:
        """Return the current state: of several gears, that of the one that has been in its stage for longest."""
        now = time.monotonic()
        with self._lock:
            busy = sorted((since, gear, stage) for gear, (stage, since) in self._stages.items())
            is_over = self._done >= self._gears
        if not busy:
            if is_over or self._ended.is_set():
                return State(f"{self._failed} failed") if self._failed else State("")
            return State(STAGES["trace"], "", now - self._idle)
        since, gear, stage = busy[0]
        step = STAGES.get(stage, stage)
        if stage in SHARED_STAGES:
            return State(step, "", now - since)
        return State(step, gear, now - since, len(busy) - 1)

    def _share(self) -> float:
        """Return the share of the work that is done: finished gears, finished stages of others, the trace."""
        with self._lock:
            parts = sum(SHARES.get(stage, 0.0) for stage, _ in self._stages.values())
            return (self._done + parts + 0.3 * self._is_traced) / (self._gears + 0.3)

    def _drawn(self, width: int) -> Text:
        from rich.text import Text

        count, seconds = f"{self._done}/{self._gears}", time.monotonic() - self._created
        line = fitted(width - 1, self._method, self._share(), count, seconds, self._state())
        done, rest = line.bar
        parts = [(line.method, "bold"), (" " if done + rest else "", ""), ("━" * done, "cyan"), ("━" * rest, "dim")]
        parts += [(f" {line.count}", "green"), (f" {line.clock}", "yellow"), (f" {line.state}", "")]
        return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")

    def _beat(self) -> None:
        wait = _FIRST_BEAT
        while not self._ended.wait(wait):
            wait = min(2 * wait, _LAST_BEAT)
            print_progress(f"`{self._method}`: {self._done} of {self._gears} done; {self._state().text()}")

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
