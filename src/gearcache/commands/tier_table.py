"""What tiers did for this host, in `gearcache stats`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gearcache.commands.common import seconds_text, size_text
from gearcache.commands.printing import echo
from gearcache.commands.table import print_table

_TITLES = ("Tier", "Hits", "Misses", "Faults", "Fetched", "Uploads", "Uploaded", "Saved")


def print_tiers(tiers: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each tier that this cache was used with; nothing without any."""
    rows = [
        (
            each["label"],
            str(each["hits"]),
            str(each["misses"]),
            str(each["faults"]),
            size_text(each["bytes_fetched"]),
            str(each["uploads"]),
            size_text(each["bytes_uploaded"]),
            seconds_text(each["seconds_saved"]),
        )
        for each in tiers
    ]
    if rows:
        echo("")
        print_table(_TITLES, rows, right=_TITLES[1:], spare=("Uploads", "Uploaded", "Fetched"))


def tier_plain(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts of one tier as JSON data."""
    names = ("hits", "misses", "faults", "uploads", "bytes_fetched", "bytes_uploaded")
    plain = {"tier": counts["label"], **{name: int(counts[name]) for name in names}}
    return {**plain, "compile_seconds_saved": round(float(counts["seconds_saved"]), 3)}
