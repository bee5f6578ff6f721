"""What a user sees while gears compile: a bar on a terminal, log lines elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import Any

logger = logging.getLogger("gearcache")


class BuildProgress:
    """One build of a method. Called from several threads; each update is one call into `rich` or `logging`."""

    def __init__(self, method: str, gears: int) -> None:
        self._method = method
        self._gears = gears
        self._done = 0
        self._begin = time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._stages: dict[str, str] = {}

    def __enter__(self) -> BuildProgress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[stage]}"),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task(f"compile {self._method}", total=self._gears, stage="trace")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, gear: str, stage: str) -> None:
        """Note that a gear entered a stage."""
        self._stages[gear] = stage
        elapsed = time.monotonic() - self._begin
        if stage in ("done", "failed"):
            self._done += 1
            del self._stages[gear]
            logger.info(
                "%s: gear %s %s (%d of %d, %.1f s)",
                self._method,
                gear,
                stage,
                self._done,
                self._gears,
                elapsed,
            )
        else:
            logger.debug("%s: gear %s: %s (%.1f s)", self._method, gear, stage, elapsed)
        if self._bar is not None:
            busy = "; ".join(f"{name}: {state}" for name, state in self._stages.items() if state != "wait")
            self._bar.update(self._task, completed=self._done, stage=busy)

    def extend(self, gears: int) -> None:
        """Note that more gears will be compiled than was known at first."""
        self._gears += gears
        if self._bar is not None:
            self._bar.update(self._task, total=self._gears)
