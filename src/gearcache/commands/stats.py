"""`gearcache stats`."""

from __future__ import annotations

from pathlib import Path

import click

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.tally import misses
from gearcache.commands.common import (
    cache_dir_option,
    count,
    json_option,
    layout_at,
    note_faults,
    print_json,
    seconds_text,
    size_text,
)
from gearcache.commands.printing import echo


@click.command("stats")
@cache_dir_option
@json_option
def command(cache_dir: Path | None, as_json: bool) -> None:
    """Say what the cache was good for: hits, misses by reason, compile seconds saved, bytes.

    Counted over all processes since the cache was made. A hit is a process that loads an entry; it saves the compile
    time of the entry's gears. Hits of entries that were removed are gone with them.
    """
    layout = layout_at(cache_dir)
    catalog = Catalog(layout)
    entries = catalog.entries()
    missed = misses(layout)
    quarantined = catalog.quarantined()
    hits = sum(entry.hits for entry in entries)
    spent = sum(entry.compile_seconds for entry in entries)
    saved = sum(entry.hits * entry.compile_seconds for entry in entries)
    size = catalog.total_size(entries)
    if as_json:
        print_json(
            {
                "root": str(layout.root),
                "entries": len(entries),
                "gears": sum(len(entry.gears) for entry in entries),
                "size": size,
                "hits": hits,
                "misses": sum(missed.values()),
                "misses_by_reason": missed,
                "compile_seconds": round(spent, 3),
                "compile_seconds_saved": round(saved, 3),
                "quarantined": len(quarantined),
                "quarantined_size": sum(item.size for item in quarantined),
            }
        )
        note_faults(catalog)
        return
    gears = count(sum(len(entry.gears) for entry in entries), "gear")
    lines = [
        ("Cache", str(layout.root)),
        ("Entries", f"{len(entries)} with {gears}, {size_text(size)}"),
        ("Hits", str(hits)),
        ("Misses", str(sum(missed.values()))),
        *((f"  {reason}", str(number)) for reason, number in missed.items()),
        ("Compile time", seconds_text(spent)),
        ("Compile time saved", seconds_text(saved)),
    ]
    if quarantined:
        kept = count(len(quarantined), "file")
        lines.append(("Quarantine", f"{kept}, {size_text(sum(item.size for item in quarantined))}"))
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        echo(f"{name:<{width}}  {text}")
    note_faults(catalog)
