"""`gearcache du`."""

from __future__ import annotations

from pathlib import Path

import click

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.row import EntryRow
from gearcache.commands.common import (
    ago_text,
    common_options,
    count,
    layout_at,
    note,
    note_faults,
    print_json,
    size_text,
)
from gearcache.commands.table import print_table


@click.command("du")
@common_options
def command(cache_dir: Path | None, as_json: bool) -> None:
    """Say how much of the disk each method takes, the largest first.

    A blob that entries of one method share counts once; what methods share counts for each, and once in the total.
    """
    catalog = Catalog(layout_at(cache_dir))
    methods: dict[str, list[EntryRow]] = {}
    entries = catalog.entries()
    for entry in entries:
        methods.setdefault(entry.label, []).append(entry)
    sizes = {label: catalog.total_size(rows) for label, rows in methods.items()}
    ordered = sorted(sizes, key=lambda label: (-sizes[label], label))
    total = catalog.total_size(entries)
    if as_json:
        used = [
            {"method": methods[label][0].method, "entries": len(methods[label]), "size": sizes[label]}
            for label in ordered
        ]
        print_json("du", {"root": str(catalog.layout.root), "methods": used, "size": total})
    elif ordered:
        rows = [_row(methods[label], sizes[label]) for label in ordered]
        print_table(("Method", "Entries", "Gears", "Size", "Used"), rows, right=("Entries", "Gears", "Size"))
    note_faults(catalog)
    if not as_json:
        note(f"{count(len(entries), 'entry', 'entries')}, {size_text(total)} in `{catalog.layout.root}`")


def _row(entries: list[EntryRow], size: int) -> tuple[str, ...]:
    gears = sum(len(entry.gears) for entry in entries)
    return (
        entries[0].method,
        str(len(entries)),
        str(gears),
        size_text(size),
        ago_text(max(entry.last_use for entry in entries)),
    )
