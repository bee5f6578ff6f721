"""Reads the files of `GEARCACHE_TRACE`: the spans of a start, and the calls of that process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from gearcache.cache.files.regular_files import open_regular
from gearcache.errors import CacheError
from gearcache.guards.evidence.reason import Reason
from gearcache.reporting.safe_texts import counted, gear_name, number, shown, whole

#: A file of gearcache has at most 4 MB of spans; reading takes 20 times as much memory.
LARGEST = 16 << 20
_SPANS = 5000
_METHODS = 2000
_ROWS = 2000
_KINDS = 40


def read_recorded(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a start and its methods as plain data; `CacheError` for a file that is not a trace of gearcache."""
    try:
        content, events = _parts(json.loads(_read(path)))
        spans = [_span(event) for event in events if event.get("ph") == "X"]
        methods = [_method(method) for method in content["methods"][:_METHODS]]
        start = {
            "file": shown(path.name),
            "command": shown(content.get("command", "")),
            "pid": whole(content.get("pid")),
            "began": number(content.get("began")),
            "seconds": round(number(content.get("seconds")), 6),
            "final": content["final"] if isinstance(content.get("final"), bool) else None,
            "dropped": whole(content.get("dropped")) + max(0, len(spans) - _SPANS),
            "kinds": _kinds(spans),
            "spans": sorted(spans, key=lambda span: (span["begin"], -span["seconds"]))[:_SPANS],
        }
    except OSError as error:
        raise CacheError(f"`{path}` cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CacheError(f"`{path}` is no file that `GEARCACHE_TRACE` has written: {_reason_text(error)}") from error
    return start, methods


def _parts(document: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return gearcache's own data and the events; `ValueError` for anything else."""
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise ValueError("it has no list `traceEvents`")
    own = document.get("gearcache")
    if not isinstance(own, dict):
        raise ValueError("it has no part `gearcache`: another program has written it")
    if not isinstance(own.get("methods"), list):
        raise ValueError("its part `gearcache` has no list `methods`")
    return own, document["traceEvents"]


def _reason_text(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return f"it is no JSON ({error})" if isinstance(error, json.JSONDecodeError) else "it is no text"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error) if isinstance(error, ValueError) else "a part of it has another form"


def _read(path: Path) -> bytes:
    """Read a file without trusting its content; `ValueError` for one that is too large."""
    with os.fdopen(open_regular(path, os.O_RDONLY, follow=True), "rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"it has more than {LARGEST} bytes, which no such file needs")
    return data


def _span(event: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": shown(event["name"], 120),
        "category": shown(event.get("cat", ""), 40),
        "begin": round(number(event["ts"]) / 1e6, 6),
        "seconds": round(number(event["dur"]) / 1e6, 6),
        "thread": whole(event.get("tid")),
    }


def _kinds(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the time of each kind of span, the longest first; spans inside one of the same kind count once."""
    kinds: dict[str, dict[str, Any]] = {}
    ends: dict[tuple[str, int], float] = {}
    for span in sorted(spans, key=lambda each: (each["begin"], -each["seconds"])):
        row = kinds.setdefault(span["category"], {"category": span["category"], "spans": 0, "seconds": 0.0})
        row["spans"] += 1
        lane, end = (span["category"], span["thread"]), span["begin"] + span["seconds"]
        row["seconds"] += max(0.0, end - max(span["begin"], ends.get(lane, 0.0)))
        ends[lane] = max(end, ends.get(lane, 0.0))
    rows = sorted(kinds.values(), key=lambda row: -row["seconds"])[:_KINDS]
    return [{**row, "seconds": round(row["seconds"], 6)} for row in rows]


def _method(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "method": shown(record["method"]),
        "owner": shown(record.get("owner", "")),
        "declared": [gear_name(gear) for gear in record.get("declared", [])][:_ROWS],
        "gears": counted(record.get("gears"), name_of=gear_name),
        "padded": counted(record.get("padded"), name_of=gear_name),
        "eager_reasons": counted(record.get("eager_reasons")),
        "refused_errors": counted(record.get("refused_errors")),
        "dims": [shown(dim) for dim in record.get("dims", [])][:64],
        "shapes": _shapes(record.get("shapes", [])),
        "reasons": [_reason(reason) for reason in record.get("reasons", [])[:_ROWS]],
    }


def _shapes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return sizes (None for an invalid one) and calls; rows beyond the limit are added up without sizes."""
    shapes = [
        {"sizes": [size if type(size) is int and size >= 0 else None for size in row["shape"]][:64], "calls": calls}
        for row in rows[:_ROWS]
        if (calls := whole(row["calls"]))
    ]
    rest = sum(whole(row["calls"]) for row in rows[_ROWS:])
    return [*shapes, {"sizes": [], "calls": rest}] if rest else shapes


def _reason(record: dict[str, Any]) -> dict[str, Any]:
    texts = {name: shown(record.get(name, "")) for name in ("kind", "text", "subject", "stored", "present", "file")}
    advice = Reason(texts["kind"], "", texts["subject"]).advice
    return {**texts, "line": whole(record.get("line")), "times": whole(record.get("times")), "advice": shown(advice)}


def advice_for(kind: str) -> str:
    """Return the advice about misses of a kind, if nothing else is known about them."""
    return Reason(kind, "", "what differs").advice.replace("`what differs`", "what differs")
