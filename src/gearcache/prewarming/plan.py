"""Writes the plan of a prewarm: a file that lists what a run would compile; works without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gearcache.cache.files.atomic import write_atomic
from gearcache.prewarming.report import Prewarmed, PrewarmReport
from gearcache.version import __version__

#: Incremented when a field is removed or changes its meaning; new fields may be added without it.
PLAN_SCHEMA = 1


def plan_of(
    report: PrewarmReport, *, target: str, root: Path, torch_version: str, shard: str | None, error: str | None
) -> dict[str, Any]:
    """Return the plan of a dry run as JSON data: a sorted row for each gear, so that equal plans are equal files.

    `docs/plan.schema.json` describes it."""
    missing = [
        {**_entry_fields(entry), "gear": gear, "reason": entry.reasons.get(gear, entry.reason)}
        for entry in report.entries
        for gear in entry.missing
    ]
    # A gear that is missing for some kinds of call counts as missing.
    present = [
        {**_entry_fields(entry), "gear": gear}
        for entry in report.entries
        for gear in entry.present
        if gear not in entry.missing
    ]
    left_entries = [{**_entry_fields(entry), "to": entry.left_to} for entry in report.entries if entry.left_to]
    failed = [
        {"method": entry.method, "rank": entry.rank, "call": call, "reason": reason}
        for entry in report.entries
        for call, reason in entry.failed.items()
    ]
    return {
        "schema": PLAN_SCHEMA,
        "kind": "gearcache prewarm plan",
        "target": target,
        "gearcache": __version__,
        "torch": torch_version,
        "root": str(root),
        "shard": shard,
        "missing": sorted(missing, key=_order),
        "present": sorted(present, key=_order),
        "left": sorted(left_entries, key=_order),
        "failed": failed,
        "never_called": list(report.never_called),
        "error": error,
        "complete": error is None and report.is_complete and bool(report.entries),
    }


def write_plan(path: Path, plan: dict[str, Any]) -> None:
    """Write a plan atomically; raises `PublishError`."""
    write_atomic(path, (json.dumps(plan, indent=2, ensure_ascii=True, allow_nan=False) + "\n").encode())


def _entry_fields(entry: Prewarmed) -> dict[str, Any]:
    return {"method": entry.method, "key": entry.key, "ranks": entry.ranks, "rank": entry.rank}


def _order(gear_row: dict[str, Any]) -> tuple[Any, ...]:
    return (
        gear_row["method"],
        gear_row["key"],
        gear_row["ranks"],
        -1 if gear_row["rank"] is None else gear_row["rank"],
        gear_row.get("gear", ""),
    )
