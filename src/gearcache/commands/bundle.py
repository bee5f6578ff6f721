"""`gearcache bundle`."""

from __future__ import annotations

from pathlib import Path

import click

from gearcache.cache.admin.bundle import BundleSummary, write_bundle
from gearcache.cache.admin.catalog import Catalog
from gearcache.commands.common import (
    common_options,
    count,
    layout_at,
    note_faults,
    print_json,
    size_text,
)
from gearcache.commands.named import entry_argument, find_all
from gearcache.commands.printing import tell


@click.command("bundle")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@entry_argument("entries", nargs=-1)
@common_options
def command(file: Path, entries: tuple[str, ...], cache_dir: Path | None, as_json: bool) -> None:
    """Write entries (all of them, or those named) into one FILE, for `gearcache unbundle` on another host.

    Every byte is verified on the way. The other host uses an entry where its key fits: the same torch and Python, and
    for compiled code the same thread count, and the same instruction sets, or a CPU that has its target.
    """
    catalog = Catalog(layout_at(cache_dir))
    named = {entry.identity: entry for name in entries for entry in find_all(catalog, name)}
    chosen = list(named.values()) or catalog.entries()
    if not chosen:
        note_faults(catalog)
        raise click.UsageError(f"there is nothing to bundle in `{catalog.layout.root}`")
    summary = write_bundle(catalog.layout, chosen, file)
    if as_json:
        print_json("bundle", {"file": str(file), **bundle_plain(summary)})
    else:
        tell(f"wrote {bundle_text(summary)} to `{file}`, {size_text(file.stat().st_size)}")
    note_faults(catalog)


def bundle_text(summary: BundleSummary) -> str:
    """Return `3 entries with 9 blobs`."""
    return f"{count(len(summary.entries), 'entry', 'entries')} with {count(summary.blobs, 'blob')}"


def bundle_plain(summary: BundleSummary) -> dict[str, object]:
    """Return a summary as JSON data."""
    return {
        "entries": summary.entries,
        "skipped": summary.skipped,
        "blobs": summary.blobs,
        "size": summary.size,
    }
