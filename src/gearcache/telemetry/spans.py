"""How long steps of a start take, where `GEARCACHE_TRACE` has a recorder put in place (`telemetry.start_trace`)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol


class Recorder(Protocol):
    """What spans are given to: `telemetry.start_trace` has it."""

    def add(self, category: str, name: str, begin: float, seconds: float, thread: int = 0) -> None: ...

    def follow(self, method: Any) -> None: ...

    def answered(self) -> None: ...

    def release(self) -> None: ...


_recorder: Recorder | None = None


def recorder() -> Recorder | None:
    """What records this process; None where nothing does."""
    return _recorder


def record_by(found: Recorder | None) -> None:
    """Have this process recorded from now on, or not any more."""
    global _recorder
    _recorder = found


def span(category: str, name: str) -> AbstractContextManager[None]:
    """Note how long a block takes, if this process is recorded."""
    return nullcontext() if _recorder is None else _timed(_recorder, category, name)


@contextmanager
def _timed(found: Recorder, category: str, name: str) -> Iterator[None]:
    begin = time.perf_counter()
    try:
        yield
    finally:
        found.add(category, name, begin, time.perf_counter() - begin)
