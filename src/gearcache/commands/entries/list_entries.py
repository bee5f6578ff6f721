"""`gearcache list`: lists the entries of a cache."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import click

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.row import total_size
from gearcache.collection import paused_collection
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
from gearcache.commands.entries.entry_names import is_called
from gearcache.commands.output.listing import Column, Listing, number_of, or_dash
from gearcache.commands.output.verbosity import is_verbose

#: The sort keys, and whether the largest value is first; a catalog lists the last used entry first.
_ORDERS = {
    "use": None,
    "size": (attrgetter("size"), True),
    "hits": (attrgetter("hits"), True),
    "name": (attrgetter("identity"), False),
}
_ENTRIES = Listing(
    (
        Column("Method", "method"),
        Column("Key", "key", lambda key: str(key) if is_verbose() else str(key)[:12]),
        Column("Ranks", "ranks", or_dash, spare=1),
        Column("Graphs", "gears", number_of, is_right=True),
        Column("Size", "size", size_text, is_right=True),
        Column("Used", "last_use", ago_text),
        Column("Hits", "hits", is_right=True),
        Column("Made", "created", ago_text, spare=2),
        Column("Torch", "torch", or_dash, spare=3),
    )
)


@click.command("list")
@click.argument("method", required=False)
@click.option("--sort", type=click.Choice(list(_ORDERS)), default="use", help="What comes first.", show_default=True)
@common_options
def command(method: str | None, sort: str, cache_dir: Path | None, as_json: bool) -> None:
    """List the entries of a cache, the last used first.

    METHOD limits the list to methods of this name; it may hold `*`, as in `Model.*`. `-v` prints whole keys.
    """
    # Up to 100,000 rows, none of which becomes garbage before the end.
    with paused_collection():
        _list(Catalog(layout_at(cache_dir)), method, sort, as_json)


def _list(catalog: Catalog, method: str | None, sort: str, as_json: bool) -> None:
    entries = [entry for entry in catalog.entries() if method is None or is_called(entry, method)]
    if (order := _ORDERS[sort]) is not None:
        entries.sort(key=order[0], reverse=order[1])
    rows = [entry_plain(entry, catalog) for entry in entries]
    if as_json:
        print_json("list", {"entries": rows, "unreadable": list(map(str, catalog.faults))})
    else:
        _ENTRIES.print(rows)
    note_faults(catalog)
    if not entries:
        note(f"no entries{f' of `{method}`' if method else ''} in `{catalog.layout.root}`")
    elif not as_json:
        note(f"{count(len(entries), 'entry', 'entries')}, {size_text(total_size(entries))} on disk")
