"""Reads the files of `GEARCACHE_TRACE`: a process, and the calls of its methods."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from gearcache.cache.files.trust import open_regular
from gearcache.errors import CacheError
from gearcache.guards.evidence.reason import Reason
from gearcache.reporting.safe_texts import counted, gear_name, shown

#: A file of gearcache has at most 4 MB of spans; reading takes 20 times as much memory.
LARGEST = 16 << 20
_Count = Annotated[int, Meta(ge=0, le=1 << 53)]
_Seconds = Annotated[float, Meta(ge=0, le=1e15)]


class _Reason(Reason, frozen=True):
    times: _Count = 1


class _Shape(Struct):
    shape: list[_Count]
    calls: _Count


class _Method(Struct):
    method: str
    gears: dict[str, _Count]
    padded: dict[str, _Count]
    eager_reasons: dict[str, _Count]
    refused_errors: dict[str, _Count]
    dims: list[str]
    shapes: list[_Shape]
    reasons: list[_Reason]
    declared: list[str] = field(default_factory=list)


class _Process(Struct):
    methods: list[_Method]
    command: str
    pid: _Count
    began: _Seconds
    seconds: _Seconds


class _File(Struct):
    """A trace; other programs write other parts of it."""

    gearcache: _Process


def read_recorded(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a start and its methods as plain data; `CacheError` for a file that is not a trace of gearcache."""
    try:
        process = msgspec.json.decode(_read(path), type=_File).gearcache
    except OSError as error:
        raise CacheError(f"`{path}` cannot be read: {error.strerror}") from error
    except (ValueError, msgspec.DecodeError, RecursionError) as error:
        raise CacheError(f"`{path}` is no file that `GEARCACHE_TRACE` has written: {error}") from error
    start = {
        "file": shown(str(path)),
        "command": shown(process.command),
        "pid": process.pid,
        "began": process.began,
        "seconds": round(process.seconds, 6),
    }
    return start, [_plain(method) for method in process.methods]


def _read(path: Path) -> bytes:
    """Read a file without trusting its content; `ValueError` for one that is too large."""
    with os.fdopen(open_regular(path, os.O_RDONLY, follow=True), "rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"it has more than {LARGEST} bytes, which no such file needs")
    return data


def _plain(record: _Method) -> dict[str, Any]:
    return {
        "method": shown(record.method),
        "declared": [gear_name(gear) for gear in record.declared],
        "gears": counted(record.gears, gear_name),
        "padded": counted(record.padded, gear_name),
        "eager_reasons": counted(record.eager_reasons),
        "refused_errors": counted(record.refused_errors),
        "dims": [shown(dim) for dim in record.dims],
        "shapes": [{"sizes": row.shape, "calls": row.calls} for row in record.shapes if row.calls],
        "reasons": [_reason(reason) for reason in record.reasons],
    }


def _reason(record: _Reason) -> dict[str, Any]:
    texts = {name: shown(getattr(record, name)) for name in ("kind", "text", "subject", "stored", "present", "file")}
    return {**texts, "line": record.line, "times": record.times, "advice": shown(record.advice)}


def advice_for(kind: str) -> str:
    """Return the advice about misses of a kind, if nothing else is known about them."""
    return Reason(kind, "", "what differs").advice.replace("`what differs`", "what differs")
