"""What one cached method reports to the record of a start (`GEARCACHE_TRACE`): its first answer, and all its calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gearcache.guards.gears.parse import GearSpec, gear_text
from gearcache.telemetry.counters import Counters
from gearcache.telemetry.gear_use import GearUse, ShapesMet
from gearcache.telemetry.spans import SpanRecorder

_MOST_SHAPES = 2000
_MOST_REASONS = 200
_MOST_GEARS = 512
_REASON = ("kind", "text", "subject", "stored", "present", "file", "line")


class RecordedCalls:
    """The calls of one method. Its counters live as long as the process, even if the method and its model do not."""

    def __init__(self, counters: Counters, use: GearUse, trace_recorder: SpanRecorder) -> None:
        self._name, self._counters, self._use = counters.method, counters, use
        self._recorder = trace_recorder
        self._answered: set[str] = set()
        #: Number of calls that the dispatch has passed on.
        self._passed = 0
        trace_recorder.follow(self)

    def pass_on(self) -> None:
        """Record that the dispatch does not serve a call itself."""
        self._passed += 1

    def answer(self, begin: float, *, by_graph: bool) -> None:
        """Record the first call that a graph has answered, and the first that the method itself has answered."""
        category = "answer" if by_graph else "itself"
        if category in self._answered:
            return
        self._answered.add(category)
        self._recorder.add(category, self._name, begin, time.perf_counter() - begin)
        self._recorder.answered()

    def noting(self, dispatch: Callable[..., Any]) -> Callable[..., Any]:
        """Return a dispatch that records its first answer."""

        def noted(instance: Any, /, *args: Any, **kwargs: Any) -> Any:
            if "answer" in self._answered:
                return dispatch(instance, *args, **kwargs)
            begin, passed_before = time.perf_counter(), self._passed
            result = dispatch(instance, *args, **kwargs)
            if passed_before == self._passed:  # else the code that served it recorded it
                self.answer(begin, by_graph=True)
            return result

        return noted

    def to_record(self) -> dict[str, Any]:
        """Return counters and reasons as plain data."""
        gears, padded = self._use.calls_by_kind()
        reasons = self._counters.reasons[-_MOST_REASONS:]
        return {
            "method": self._name,
            "hits": self._counters.hits,
            "misses": self._counters.misses,
            "gears": gears,
            "padded": padded,
            "eager_reasons": dict(self._counters.eager),
            "refused_errors": dict(self._counters.refused),
            "reasons": [{**{name: getattr(reason, name) for name in _REASON}, "times": 1} for reason in reasons],
        }


class RecordedShapes:
    """The gears of one binding, and the shapes that no graph of it has served."""

    def __init__(self, name: str, spec: GearSpec, shapes: ShapesMet) -> None:
        self._name, self._shapes = name, shapes
        self._gears = [gear_text(spec, gear) for gear in spec.gears[:_MOST_GEARS]] if spec.axes else []

    def to_record(self) -> dict[str, Any]:
        """Return gears, dims and shapes as plain data."""
        dims, counts = self._shapes.unserved()
        rows = sorted(counts.items())
        shapes = [{"shape": list(shape), "calls": calls} for shape, calls in rows[:_MOST_SHAPES]]
        if rest := sum(calls for _, calls in rows[_MOST_SHAPES:]):
            shapes.append({"shape": [], "calls": rest})
        return {
            "method": self._name,
            "declared": self._gears,
            "dims": dims,
            "shapes": shapes,
        }
