"""Shows what tiers did for this host, in `gearcache stats`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gearcache.commands.common import seconds_text, size_text
from gearcache.commands.output.listing import Column, Listing

TIERS = Listing(
    (
        Column("Tier", "tier"),
        Column("Hits", "hits", is_right=True),
        Column("Misses", "misses", is_right=True),
        Column("Faults", "faults", is_right=True),
        Column("Fetched", "bytes_fetched", size_text, is_right=True, spare=1),
        Column("Uploads", "uploads", is_right=True, spare=3),
        Column("Uploaded", "bytes_uploaded", size_text, is_right=True, spare=2),
        Column("Saved", "compile_seconds_saved", seconds_text, is_right=True),
    )
)


def tier_plain(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts of one tier as JSON data."""
    names = ("hits", "misses", "faults", "uploads", "bytes_fetched", "bytes_uploaded")
    plain = {"tier": counts["label"], **{name: int(counts[name]) for name in names}}
    return {**plain, "compile_seconds_saved": round(float(counts["seconds_saved"]), 3)}
