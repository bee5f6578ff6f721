"""Measures the steps of a start, if `GEARCACHE_TRACE` has installed a recorder (`telemetry.start_trace`)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol


class SpanRecorder(Protocol):
    """Receives spans; `telemetry.start_trace` implements it."""

    def add(self, category: str, name: str, begin: float, seconds: float, thread: int = 0) -> None: ...

    def follow(self, method: Any) -> None: ...

    def answered(self) -> None: ...


_recorder: SpanRecorder | None = None


def recorder() -> SpanRecorder | None:
    """The recorder of this process; None if there is none."""
    return _recorder


def record_by(new_recorder: SpanRecorder | None) -> None:
    """Install a recorder for this process, or remove it."""
    global _recorder
    _recorder = new_recorder


def span(category: str, name: str) -> AbstractContextManager[None]:
    """Record the duration of a block, if this process has a recorder."""
    return nullcontext() if _recorder is None else _timed(_recorder, category, name)


@contextmanager
def _timed(span_recorder: SpanRecorder, category: str, name: str) -> Iterator[None]:
    begin = time.perf_counter()
    try:
        yield
    finally:
        span_recorder.add(category, name, begin, time.perf_counter() - begin)
