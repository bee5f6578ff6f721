"""What a user sees while gears compile: a bar on a terminal, one line elsewhere, and log lines.

`GEARCACHE_PROGRESS=0` turns bar and line off.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from types import TracebackType
from typing import Any

from gearcache.terminal import is_drawable

logger = logging.getLogger("gearcache")
#: A build that is over before, as those of backend `eager`, says nothing where there is no terminal.
_SILENT_SECONDS = 2.0


class BuildProgress:
    """One build of a method. Called from several threads; each update is one call into `rich` or `logging`."""

    def __init__(self, method: str, gears: int) -> None:
        self._method = method
        self._gears = gears
        self._done = 0
        #: When the compile of each gear began.
        self._begun: dict[str, float] = {}
        self._line = threading.Timer(_SILENT_SECONDS, self._tell)
        self._line.daemon = True
        self._bar: Any = None
        self._task: Any = None
        self._stages: dict[str, str] = {}

    def __enter__(self) -> BuildProgress:
        if sys.stderr is None or os.environ.get("GEARCACHE_PROGRESS", "1") in ("0", "false"):
            return self
        if not is_drawable(sys.stderr):
            self._line.start()
        else:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
            from rich.table import Column

            self._bar = Progress(
                TextColumn("[bold]{task.description}", table_column=Column(no_wrap=True)),
                BarColumn(bar_width=16),
                MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=5)),
                TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
                # What a narrow terminal has no room for.
                TextColumn("{task.fields[stage]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
                console=Console(stderr=True),
                expand=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(f"compile {self._method}", total=self._gears, stage="trace")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.cancel()
        if self._bar is not None:
            self._bar.stop()

    def update(self, gear: str, stage: str) -> None:
        """Note that a gear entered a stage."""
        self._stages[gear] = stage
        if stage != "wait":
            self._begun.setdefault(gear, time.monotonic())
        if stage in ("done", "failed"):
            self._done += 1
            del self._stages[gear]
            seconds = time.monotonic() - self._begun[gear]
            words = "%s: gear %s %s after %.1f s (%d of %d)"
            logger.info(words, self._method, gear, stage, seconds, self._done, self._gears)
        else:
            logger.debug("%s: gear %s: %s", self._method, gear, stage)
        if self._bar is not None:
            busy = "; ".join(f"{name}: {state}" for name, state in self._stages.items() if state != "wait")
            self._bar.update(self._task, completed=self._done, stage=busy)

    def extend(self, gears: int) -> None:
        """Note that more gears will be compiled than was known at first."""
        self._gears += gears
        if self._bar is not None:
            self._bar.update(self._task, total=self._gears)

    def _tell(self) -> None:
        graphs = "a graph" if self._gears == 1 else f"{self._gears} graphs"
        with contextlib.suppress(AttributeError, OSError, ValueError):  # it may be gone by now
            sys.stderr.write(f"gearcache: compiling {graphs} of `{self._method}`, which the next process will load\n")
