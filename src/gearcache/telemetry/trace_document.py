"""The Chrome trace of a start as plain data, and the records of methods of one name joined into one."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

#: The record of a method about which nothing is known.
NOTHING: dict[str, Any] = {
    "hits": 0,
    "misses": 0,
    "gears": {},
    "padded": {},
    "eager_reasons": {},
    "refused_errors": {},
    "declared": [],
    "dims": [],
    "shapes": [],
    "reasons": [],
}
#: More than the number of threads that Linux allows.
_LANE = 1 << 22
#: Times are written to a tenth of a microsecond.
_EQUAL = 1e-6


class Span(NamedTuple):
    """A step with a duration; `begin` is in seconds since `import gearcache`."""

    category: str
    name: str
    begin: float
    seconds: float
    thread: int

    @property
    def end(self) -> float:
        """Seconds since `import gearcache`."""
        return self.begin + self.seconds


def trace_events(spans: Sequence[Span], process: int, command: str) -> list[dict[str, Any]]:
    """Return the events of the Chrome trace format."""
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "ts": 0, "pid": process, "tid": process, "args": {"name": command}},
    ]
    rows = _rows(spans)
    for lane in sorted({lane for lane in rows if lane >= _LANE}):
        name = f"compiles {lane // _LANE}"
        events.append({"name": "thread_name", "ph": "M", "ts": 0, "pid": process, "tid": lane, "args": {"name": name}})
    for span, lane in zip(spans, rows, strict=True):
        event = {"name": span.name, "cat": span.category, "ph": "X"}
        times = {"ts": round(1e6 * span.begin, 1), "dur": round(1e6 * span.seconds, 1)}
        events.append({**event, **times, "pid": process, "tid": lane})
    return events


def _rows(spans: Sequence[Span]) -> list[int]:
    """Return a row for each span: that of its thread, or a new one for compiles that ran beside the thread's work.

    Spans in one row must be nested. A compile is reported by the thread that waits for it.
    """
    rows = [span.thread for span in spans]
    compiles = [index for index, span in enumerate(spans) if span.category == "compile"]
    threads = {spans[index].thread for index in compiles}
    by_begin = {
        thread: sorted((other_span.begin, other_span.end) for other_span in spans if other_span.thread == thread)
        for thread in threads
    }
    by_end = {thread: sorted((end, begin) for begin, end in times) for thread, times in by_begin.items()}
    lanes: dict[tuple[int, int], list[float]] = {}
    for index in sorted(compiles, key=lambda each: (spans[each].begin, -spans[each].seconds)):
        span = spans[index]
        if not _crosses(span, by_begin[span.thread], by_end[span.thread]):
            continue
        for lane in range(1, len(compiles) + 1):
            ends = lanes.setdefault((span.thread, lane), [])
            while ends and ends[-1] <= span.begin:
                ends.pop()
            if not ends or span.end <= ends[-1]:
                ends.append(span.end)
                rows[index] = span.thread % _LANE + lane * _LANE
                break
    return rows


def _crosses(span: Span, by_begin: list[tuple[float, float]], by_end: list[tuple[float, float]]) -> bool:
    """Whether a span of the thread begins within this one and ends after it, or began before it and ends within."""
    first, last = span.begin + _EQUAL, span.end - _EQUAL
    return any(end > span.end + _EQUAL for end in _within(by_begin, first, last)) or any(
        begin < span.begin - _EQUAL for begin in _within(by_end, first, last)
    )


def _within(times: list[tuple[float, float]], first: float, last: float) -> Iterator[float]:
    """Yield the second time of each pair whose first time is between two times."""
    for index in range(bisect_left(times, (first, 0.0)), len(times)):
        key, value = times[index]
        if key > last:
            return
        yield value


def together(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one record for each method of several objects of one class, such as equal blocks of a model.

    Shapes over different dims cannot be added up: a method whose objects have several gets a further record for each.
    """
    methods: dict[tuple[str, str], dict[str, Any]] = {}
    others: dict[tuple[str, ...], dict[str, Any]] = {}
    for record in records:
        name = {"method": record["method"], "owner": record.get("owner", "")}
        key = name["method"], name["owner"]
        total = methods.setdefault(key, {**NOTHING, **name})
        for field, value in record.items():
            if isinstance(value, int):
                total[field] += value
            elif isinstance(value, dict):
                total[field] = dict(Counter(total[field]) + Counter(value))
        total["declared"] = list(dict.fromkeys([*total["declared"], *record.get("declared", [])]))
        total["reasons"] = _summed(total["reasons"] + record.get("reasons", []), "times")
        if record.get("shapes"):
            holder = total
            if total["dims"] not in ([], record["dims"]):
                holder = others.setdefault((*key, *record["dims"]), {**NOTHING, **name})
            holder["dims"] = record["dims"]
            holder["shapes"] = _summed(holder["shapes"] + record["shapes"], "calls")
    return [*methods.values(), *others.values()]


def _summed(rows: list[dict[str, Any]], number: str) -> list[dict[str, Any]]:
    """Return rows in which those that differ only in a number are added up."""
    totals: dict[str, dict[str, Any]] = {}
    for row in rows:
        key = repr([(name, value) for name, value in row.items() if name != number])
        totals[key] = {**row, number: row[number] + totals.get(key, {number: 0})[number]}
    return list(totals.values())
