"""Remembers calls for which no graph could be made: they are not traced at each call, which may take minutes.

After some calls that the method rejects, it runs a call without a graph before the call is traced: a client that sends
nothing else costs the process no traces. After some calls that differ only in ints, sizes and new objects, and for
which the same error was found, the next ones get it without a trace for a while.
"""

from __future__ import annotations

import copy
import time
from typing import Any

from msgspec import Struct

from gearcache.errors import CompileError, GearcacheError, MethodRaises
from gearcache.guards.evidence.names import module_of
from gearcache.interrupts import raise_interrupt
from gearcache.serving.call.call import Call
from gearcache.serving.miss.likeness import likeness

#: A call is retried after this many times the duration of the last attempt, even if nothing has changed.
PATIENCE = 20.0
_MOST = 64
#: After this many rejected calls without a build in between, the method runs before a trace.
_REJECTED = 3
#: Seconds for which a call that was rejected without a trace is not traced either.
_REJECTED_SECONDS = 60.0


class _Streak(Struct):
    """An error that one build after the other has ended with."""

    error: GearcacheError
    #: What the calls have in common.
    structure: Any
    count: int
    #: When a call is traced again.
    end: float

    def follows(self, error: GearcacheError, structure: Any) -> bool:
        same_error = type(error) is type(self.error) and str(error) == str(self.error)
        return same_error and structure == self.structure


class RefusedCalls:
    """Errors of builds, by the call and what its method can see directly: its module, its globals, its modes.

    Changes elsewhere are found by the next attempt, when it is due, or after a `refresh`.
    """

    def __init__(self) -> None:
        self._errors: dict[Any, tuple[GearcacheError, float]] = {}
        #: The last traces that ended in an exception, since the last build.
        self._raised: list[MethodRaises] = []
        #: The last call that was left to the method without a trace.
        self._untraced: MethodRaises | None = None
        self._streak: _Streak | None = None

    def check(self, call: Call) -> None:
        """Raise the error of a like call again, unless another attempt is due."""
        if not self._errors:
            return
        key = likeness(call)
        if key not in self._errors and call.is_run:
            self._check_streak(call)
        if self._untraced is not None and self._untraced.is_outdated:  # it returned: calls are no longer all rejected
            self.forget_raised()
        if key not in self._errors and call.is_run and self._rejects:
            cause = "it was not traced, since the last traces ended in exceptions; it will be if the method returns"
            self._untraced = MethodRaises(self._raised[-1].method, cause)
            self._remember(key, self._untraced, _REJECTED_SECONDS)
        error, retry_time = self._errors.get(key, (None, 0.0))
        if error is None or time.monotonic() >= retry_time:
            return
        repeated = _repeated(error, "a like call was refused before", retry_time)
        if isinstance(repeated, MethodRaises) and isinstance(error, MethodRaises):
            if error.is_outdated:
                return
            repeated.remembered, repeated.is_repeated, repeated.has_run = error, True, error.has_run
        raise repeated

    def _check_streak(self, call: Call) -> None:
        streak = self._streak
        if streak is None or streak.count < _REJECTED or time.monotonic() >= streak.end:
            return
        if likeness(call, exact=False) == streak.structure:
            raise _repeated(
                streak.error, f"the last {streak.count} calls of its kind were refused for this", streak.end
            )

    def add(self, call: Call, error: GearcacheError, seconds: float) -> None:
        """Record the error of a build and its duration; errors caused by an unforeseen exception are not recorded."""
        raise_interrupt(error)
        cause = error.__cause__
        is_foreseen = cause is None or module_of(type(cause)).startswith(("torch", "gearcache"))
        if not is_foreseen and not isinstance(error, MethodRaises):
            return
        remembered = copy.copy(error)  # without the frames, which hold tensors of the call
        if isinstance(error, MethodRaises):
            error.remembered = remembered  # type: ignore[assignment]
            self._raised = [*self._raised[1 - _REJECTED :], remembered]  # type: ignore[list-item]
        else:
            structure, count = likeness(call, exact=False), 1
            if self._streak is not None and self._streak.follows(remembered, structure):
                count += self._streak.count
            self._streak = _Streak(remembered, structure, count, time.monotonic() + PATIENCE * seconds)
            if isinstance(error, CompileError) and count == 1:  # a compiler may fail for once
                return
        self._remember(likeness(call), remembered, PATIENCE * seconds)

    def forget_raised(self) -> None:
        """Trace calls without a graph again before they run: one of them was built, or has returned."""
        self._raised, self._untraced, self._streak = [], None, None

    @property
    def _rejects(self) -> bool:
        """Whether the method rejects calls, as the last traces and the runs after them have shown."""
        return len(self._raised) >= _REJECTED and not any(error.has_run for error in self._raised)

    def _remember(self, key: Any, error: GearcacheError, seconds: float) -> None:
        if len(self._errors) >= _MOST:
            self._errors.clear()
        self._errors[key] = error, time.monotonic() + seconds


def _repeated(error: GearcacheError, why: str, end: float) -> GearcacheError:
    repeated = copy.copy(error)
    if hasattr(repeated, "add_note"):  # since Python 3.11
        seconds = end - time.monotonic()
        repeated.add_note(f"{why}, so this one was not traced: it will be in {seconds:.0f} s, or after `.refresh()`")
    return repeated
