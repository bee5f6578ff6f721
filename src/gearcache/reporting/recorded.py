"""Reads the files of `GEARCACHE_TRACE`: a process, and the calls of its methods."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from gearcache.cache.files.trust import open_regular
from gearcache.errors import CacheError
from gearcache.guards.evidence.reason import Reason
from gearcache.reporting.safe_texts import counted, gear_name, number, shown, whole

#: A file of gearcache has at most 4 MB of spans; reading takes 20 times as much memory.
LARGEST = 16 << 20
_METHODS = 2000
_ROWS = 2000


def read_recorded(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a start and its methods as plain data; `CacheError` for a file that is not a trace of gearcache."""
    try:
        content = _own_part(json.loads(_read(path)))
        methods = [_method(method) for method in content["methods"][:_METHODS]]
        start = {
            "file": shown(str(path)),
            "command": shown(content.get("command", "")),
            "pid": whole(content.get("pid")),
            "began": number(content.get("began")),
            "seconds": round(number(content.get("seconds")), 6),
        }
    except OSError as error:
        raise CacheError(f"`{path}` cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CacheError(f"`{path}` is no file that `GEARCACHE_TRACE` has written: {_reason_text(error)}") from error
    return start, methods


def _own_part(document: Any) -> dict[str, Any]:
    """Return gearcache's own data; `ValueError` for anything else."""
    own = document.get("gearcache") if isinstance(document, dict) else None
    if not isinstance(own, dict):
        raise ValueError("it has no part `gearcache`: another program has written it")
    if not isinstance(own.get("methods"), list):
        raise ValueError("its part `gearcache` has no list `methods`")
    return own


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


def _method(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "method": shown(record["method"]),
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
