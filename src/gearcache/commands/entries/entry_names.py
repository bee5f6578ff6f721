"""Finds the entries that a name on the command line refers to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import click

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.row import EntryRow
from gearcache.commands.common import ago_text, count, layout_at, note, note_faults

Function = TypeVar("Function", bound=Callable[..., Any])


def complete_entry(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of an entry."""
    entries = Catalog(layout_at(context.params.get("cache_dir"), may_be_new=True)).entries()
    names = {entry.label for entry in entries} | {entry.short_name for entry in entries}
    return sorted(name for name in names if name.startswith(incomplete))


def entry_argument(name: str = "entry", **options: Any) -> Callable[[Function], Function]:
    """Add an argument that names an entry, with completion."""
    return click.argument(name, shell_complete=complete_entry, **options)


def find_newest(catalog: Catalog, text: str) -> EntryRow:
    """Return the newest entry of this name, and note that others exist; a usage error if there is none."""
    entries = sorted(_find_entries(catalog, text), key=lambda entry: entry.created, reverse=True)
    if len(entries) > 1:
        note(f"{len(entries)} entries are called `{text}`; this is the newest, the others are")
        for entry in entries[1:]:
            note(f"  {_description(catalog, entry, entries)}")
    return entries[0]


def find_all(catalog: Catalog, texts: Iterable[str]) -> list[EntryRow]:
    """Return all entries of some names, or whose methods match a pattern with `*`.

    Raises a usage error for a name that no entry has.
    """
    found = {entry.identity: entry for text in texts for entry in _find_entries(catalog, text)}
    return list(found.values())


def is_called(entry: EntryRow, pattern: str) -> bool:
    """Return whether the method of an entry has a name that a pattern with `*` matches."""
    return fnmatchcase(entry.label, pattern) or fnmatchcase(entry.method, pattern)


def _find_entries(catalog: Catalog, text: str) -> list[EntryRow]:
    entries = catalog.find(text) or [entry for entry in catalog.entries() if is_called(entry, text)]
    if not entries:
        note_faults(catalog)
        raise click.UsageError(f"no entry is called `{text}` in `{catalog.layout.root}`; `gearcache list` names them")
    return entries


def _description(catalog: Catalog, entry: EntryRow, others: list[EntryRow]) -> str:
    """Return a text that distinguishes an entry from others of its name."""
    name = entry.short_name
    if sum(other.short_name == name for other in others) > 1:
        name = str(catalog.path(entry).parent)  # of another rank
    gears = count(len(entry.gears), "graph")
    return f"{name}: made {ago_text(entry.created)}, {gears}, torch {entry.torch}, {count(entry.hits, 'hit')}"
