"""`gearcache stats`: prints what the cache has saved."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.remote.tier_counts import tier_counts
from gearcache.commands.common import (
    ago_text,
    common_options,
    count,
    layout_at,
    note_faults,
    print_json,
    seconds_text,
    size_text,
)
from gearcache.commands.figures.savings import limits_in_force, used_by_methods, used_in_all, used_plain
from gearcache.commands.output.listing import Column, Listing, percent
from gearcache.commands.output.printing import echo

_METHODS = Listing(
    (
        Column("Method", "method"),
        Column("Entries", "entries", is_right=True),
        Column("Gears", "gears", is_right=True, spare=2),
        Column("Size", "size", size_text, is_right=True, spare=1),
        Column("Hits", "hits", is_right=True),
        Column("Misses", "misses", is_right=True),
        Column("Rate", "hit_rate", percent, is_right=True),
        Column("Compile time", "compile_seconds", seconds_text, is_right=True, spare=3),
        Column("Saved", "compile_seconds_saved", seconds_text, is_right=True),
    )
)


_TIERS = Listing(
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


@click.command("stats")
@common_options
def command(cache_dir: Path | None, as_json: bool) -> None:
    """Say what the cache was good for: hits, misses by reason, compile seconds saved, bytes, for each method.

    Counted over all processes since the cache was made. A hit is a process that loads an entry to serve calls; it saves
    the compile time of the entry's gears. A prewarm counts neither as hit nor as miss.
    Hits of entries that were removed are gone with them. The limits are those of the environment of this command.
    """
    layout = layout_at(cache_dir)
    catalog = Catalog(layout)
    methods = used_by_methods(catalog.entries(), layout)
    in_all = used_plain(catalog, used_in_all(methods), limits_in_force(os.environ))
    by_method = [{"method": each.method, **each.to_plain()} for each in methods]
    by_tier = tier_counts(layout)
    if as_json:
        place = {"root": str(layout.root), "exists": layout.bucket.exists()}
        print_json("stats", {**place, **in_all, "methods": by_method, "tiers": by_tier})
    else:
        _print(str(layout.root), in_all)
        for listing, rows in ((_METHODS, by_method), (_TIERS, by_tier)):
            if rows:
                echo("")
                listing.print(rows)
    note_faults(catalog)


def _print(root: str, used: dict[str, Any]) -> None:
    limit, max_age = "none", used["limits"]["max_age"]
    if (max_size := used["limits"]["max_size"]) is not None:
        default = "" if os.environ.get("GEARCACHE_MAX_SIZE") else " by default"
        share = (used["size"] + used["quarantined_size"]) / max_size if max_size else None
        limit = f"{size_text(max_size)}{default}, {percent(share)} used"
    lookups = count(used["hits"] + used["misses"], "lookup")
    lines = [
        ("Cache", root),
        ("Entries", f"{used['entries']} with {count(used['gears'], 'graph')}, {size_text(used['size'])}"),
        ("Limit", limit),
        *([("Age limit", f"{max_age / 86400:g} d without use")] if max_age is not None else []),
        *([("Counted since", f"{ago_text(used['since'])}, when the cache was made")] if used["since"] else []),
        ("Hits", f"{used['hits']} of {lookups}, {percent(used['hit_rate'])}"),
        ("Misses", str(used["misses"])),
        *((f"  {reason}", str(number)) for reason, number in used["misses_by_reason"].items()),
        ("Compile time", seconds_text(used["compile_seconds"])),
        ("Compile time saved", seconds_text(used["compile_seconds_saved"])),
    ]
    if used["quarantined"]:
        lines.append(("Quarantine", f"{count(used['quarantined'], 'file')}, {size_text(used['quarantined_size'])}"))
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        echo(f"{name:<{width}}  {text}")
