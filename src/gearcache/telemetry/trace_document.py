"""The Chrome trace of a start as plain data, and the records of methods of one name joined into one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
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


class Span(NamedTuple):
    """A step with a duration; `begin` is in seconds since `import gearcache`."""

    category: str
    name: str
    begin: float
    seconds: float
    thread: int


def trace_events(spans: Sequence[Span], process: int, command: str) -> list[dict[str, Any]]:
    """Return the events of the Chrome trace format.

    Spans of one thread must be nested. Compiles run beside the thread that waits for them: they are asynchronous
    events, which Perfetto draws in rows of their own.
    """
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "ts": 0, "pid": process, "tid": process, "args": {"name": command}},
    ]
    for number, span in enumerate(spans):
        event = {"name": span.name, "cat": span.category, "ts": round(1e6 * span.begin, 1), "pid": process}
        event["tid"] = span.thread
        if span.category == "compile":
            end = round(1e6 * (span.begin + span.seconds), 1)
            events += [{**event, "ph": "b", "id": number}, {**event, "ph": "e", "id": number, "ts": end}]
        else:
            events.append({**event, "ph": "X", "dur": round(1e6 * span.seconds, 1)})
    return events


def together(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one record for each method of several objects, such as equal blocks of a model.

    Shapes over different dims cannot be added up: a method whose objects have several gets a further record for each.
    """
    methods: dict[str, dict[str, Any]] = {}
    others: dict[tuple[str, ...], dict[str, Any]] = {}
    for record in records:
        name = record["method"]
        total = methods.setdefault(name, {"method": name, **NOTHING})
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
                holder = others.setdefault((name, *record["dims"]), {"method": name, **NOTHING})
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
