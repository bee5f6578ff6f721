"""`gearcache list`."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import click

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.row import EntryRow
from gearcache.cache.collection import paused_collection
from gearcache.commands.common import (
    ago_text,
    common_options,
    count,
    entry_plain,
    layout_at,
    note,
    note_faults,
    print_json,
    size_text,
)
from gearcache.commands.named import is_called
from gearcache.commands.table import print_table
from gearcache.commands.verbosity import is_verbose

#: What is sorted by, and whether the largest comes first; a catalog gives the last used first.
_ORDERS = {
    "use": None,
    "size": (attrgetter("size"), True),
    "hits": (attrgetter("hits"), True),
    "name": (attrgetter("identity"), False),
}
_TITLES = ("Method", "Key", "Ranks", "Gears", "Size", "Used", "Hits", "Made", "Torch")


@click.command("list")
@click.argument("method", required=False)
@click.option("--sort", type=click.Choice(list(_ORDERS)), default="use", help="What comes first.", show_default=True)
@common_options
def command(method: str | None, sort: str, cache_dir: Path | None, as_json: bool) -> None:
    """List the entries of a cache, the last used first.

    METHOD limits the list to methods of this name; it may hold `*`, as in `Model.*`. `-v` prints whole keys.
    """
    # Up to 100,000 rows, of which none becomes garbage before the end.
    with paused_collection():
        _list(Catalog(layout_at(cache_dir)), method, sort, as_json)


def _list(catalog: Catalog, method: str | None, sort: str, as_json: bool) -> None:
    entries = [entry for entry in catalog.entries() if method is None or is_called(entry, method)]
    if (order := _ORDERS[sort]) is not None:
        entries.sort(key=order[0], reverse=order[1])
    if as_json:
        print_json("list", {"entries": [entry_plain(entry, catalog) for entry in entries]})
    elif entries:
        rows = [_row(entry, whole=is_verbose()) for entry in entries]
        print_table(_TITLES, rows, right=("Gears", "Size", "Hits"), spare=("Torch", "Made", "Ranks"))
    note_faults(catalog)
    if not entries:
        note(f"no entries{f' of `{method}`' if method else ''} in `{catalog.layout.root}`")
    elif not as_json:
        note(f"{count(len(entries), 'entry', 'entries')}, {size_text(catalog.total_size(entries))} on disk")


def _row(entry: EntryRow, *, whole: bool) -> tuple[str, ...]:
    return (
        entry.method,
        entry.digest if whole else entry.digest[:12],
        entry.ranks or "-",
        str(len(entry.gears)),
        size_text(entry.size),
        ago_text(entry.last_use),
        str(entry.hits),
        ago_text(entry.created),
        entry.torch or "-",
    )
