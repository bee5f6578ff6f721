"""`gearcache explain`: shows how entries, caches and deploys differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.row import EntryRow
from gearcache.cache.manifest import Manifest
from gearcache.commands.common import (
    common_options,
    entry_plain,
    layout_at,
    note,
    note_faults,
    print_json,
)
from gearcache.commands.deployments.deploys import are_caches, explain_caches
from gearcache.commands.entries.entry_names import entry_argument, find_newest
from gearcache.commands.output.printing import echo
from gearcache.errors import CacheError
from gearcache.readable.differences import differences, differing_lines

_SHOWN = 40


@click.command("explain")
@entry_argument()
@entry_argument("other", required=False)
@click.option(
    "--exit-code",
    "says_by_code",
    is_flag=True,
    help="Of two caches: end with 1 where a host that holds A would compile something of B, or B cannot be read whole.",
)
@common_options
def command(entry: str, other: str | None, says_by_code: bool, cache_dir: Path | None, as_json: bool) -> None:
    """Say how an entry differs from another, or what a deploy would compile.

    \b
    gearcache explain ENTRY        compare with the nearest other entry of the method
    gearcache explain ENTRY OTHER  compare two entries
    gearcache explain A B          compare two cache folders or bundles: with A what hosts
                                   hold, and B what a new deploy was prewarmed with, the
                                   deploy compiles what only B has

    ENTRY is a method, a key or its start, or a path, as for `show`. What calls of a function miss, and why, is what
    `gearcache prewarm --dry-run` says.
    """
    if other is not None and are_caches(entry, other):
        explain_caches(Path(entry), Path(other), says_by_code=says_by_code, as_json=as_json)
        return
    if says_by_code:
        raise click.UsageError("--exit-code needs two cache folders or bundles")
    catalog = Catalog(layout_at(cache_dir))
    wanted_entry = find_newest(catalog, entry)
    manifest = catalog.read(wanted_entry)
    if other is not None:
        stored_entry = find_newest(catalog, other)
        stored = catalog.read(stored_entry)
    else:
        nearest = _nearest(catalog, wanted_entry, manifest)
        if nearest is None:
            note(f"`{wanted_entry.label}` has no other entry to compare `{wanted_entry.short_name}` with")
            if as_json:
                no_differences: dict[str, Any] = {"stored": None, "key": [], "variants": []}
                print_json("explain", {"wanted": entry_plain(wanted_entry, catalog), **no_differences})
            return
        stored_entry, stored = nearest
    keys = list(differences(manifest.components, stored.components))
    variants = list(differing_lines(manifest, stored))
    if as_json:
        print_json(
            "explain",
            {
                "wanted": entry_plain(wanted_entry, catalog),
                "stored": entry_plain(stored_entry, catalog),
                "key": [dict(zip(("path", "wanted", "stored"), item, strict=True)) for item in keys],
                "variants": variants,
            },
        )
        return
    echo(f"wanted  {wanted_entry.short_name} {wanted_entry.ranks}".rstrip())
    echo(f"stored  {stored_entry.short_name} {stored_entry.ranks}".rstrip())
    _print("The keys differ in", [f"{path}: wanted {ours}, stored {theirs}" for path, ours, theirs in keys])
    if not keys:
        echo("", "The keys are equal" + (", the ranks differ" if wanted_entry.ranks != stored_entry.ranks else ""))
    _print("What the traces depend on differs in", variants)
    note_faults(catalog)


def _print(title: str, lines: list[str]) -> None:
    if lines:
        echo("", title)
        for line in lines[:_SHOWN]:
            echo(f"  {line}")
        if len(lines) > _SHOWN:
            echo(f"  … {len(lines) - _SHOWN} more, see --json")


def _nearest(catalog: Catalog, wanted_entry: EntryRow, manifest: Manifest) -> tuple[EntryRow, Manifest] | None:
    """Return the entry of the same method whose key differs in the fewest leaves."""
    best: tuple[int, EntryRow, Manifest] | None = None
    for candidate in catalog.entries():
        if candidate.label == wanted_entry.label and candidate.identity != wanted_entry.identity:
            try:
                stored = catalog.read(candidate)
            except CacheError:
                continue  # removed or damaged in the meantime
            distance = sum(1 for _ in differences(manifest.components, stored.components))
            if best is None or distance < best[0]:
                best = distance, candidate, stored
    return best[1:] if best is not None else None
