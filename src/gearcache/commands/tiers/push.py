"""`gearcache push`: sends entries to tiers."""

from __future__ import annotations

import itertools
from pathlib import Path

import click
from msgspec.structs import asdict

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.keys.key import short_name
from gearcache.cache.remote.admin.holdings import write_index
from gearcache.cache.remote.admin.push import Pushed, push_entries
from gearcache.cache.remote.engines.protocol import RemoteError
from gearcache.cache.remote.names import EntryName
from gearcache.cache.remote.tier import Tier
from gearcache.commands.common import (
    Exit,
    common_options,
    count,
    environment_trust,
    layout_at,
    note_faults,
    print_json,
    size_text,
    stop,
    tell,
    warn,
)
from gearcache.commands.entries.entry_names import entry_argument, find_all
from gearcache.commands.output.verbosity import bar
from gearcache.commands.tiers.chosen import split_names, tiers_at
from gearcache.readable.joined import covers_manifests


@click.command("push")
@entry_argument("entries", nargs=-1)
@click.option(
    "--to", "urls", multiple=True, metavar="URL", help="A tier; else those of $GEARCACHE_REMOTES. Repeatable."
)
@click.option("--index", is_flag=True, help="Write the lists that a web server needs to serve the tier read-only.")
@common_options
def command(
    entries: tuple[str, ...], urls: tuple[str, ...], index: bool, cache_dir: Path | None, as_json: bool
) -> None:
    """Send what tiers lack of entries: of all, or of those named. ENTRIES may be URLs too, as with `--to`.

    Every byte is verified before it is sent, the manifest goes last, and nothing in a tier is replaced: what other
    hosts stored stays. Where a tier fails each entry is tried three times; exit code 1 when one could not be read or
    sent.
    """
    layout = layout_at(cache_dir)
    names, others = split_names(entries)
    tiers = tiers_at(layout, [*urls, *others], "--to", to_write=True)
    catalog = Catalog(layout)
    rows = find_all(catalog, names) or catalog.entries()
    unreadable = [] if names else list(map(str, catalog.faults))
    entry_names = [EntryName(*entry.identity) for entry in rows]
    trust = environment_trust()
    numbers = itertools.count(1)
    with bar("push") as progress:

        def advance() -> None:
            progress(next(numbers), len(tiers) * len(entry_names))

        outcomes = [push_entries(tier, layout, entry_names, trust, covers_manifests, advance) for tier in tiers]
    indexes = {tier.label: _index(tier) for tier in tiers} if index else {}
    if as_json:
        by_tier = [{**asdict(each), "indexed": indexes.get(each.tier) == ""} for each in outcomes]
        print_json("push", {"tiers": by_tier, "unreadable": unreadable})
    else:
        for outcome in outcomes:
            _print(outcome)
    for label, problem in indexes.items():
        if problem:
            warn(f"tier {label}: its lists cannot be written: {problem}")
    note_faults(catalog)
    if unreadable or any(outcome.failed for outcome in outcomes) or any(indexes.values()):
        stop(Exit.WRONG)


def _index(tier: Tier) -> str:
    try:
        write_index(tier)
    except RemoteError as error:
        return error.problem
    return ""


def _print(outcome: Pushed) -> None:
    for name, reason in outcome.failed.items():
        warn(f"{outcome.tier}: {short_name(name)}: {reason}")
    parts = [f"sent {count(len(outcome.sent), 'entry', 'entries')}"]
    if outcome.blobs:
        parts[0] += f" with {count(outcome.blobs, 'blob')}"
    if outcome.bytes:
        parts[0] += f", {size_text(outcome.bytes)}"
    if outcome.had:
        parts.append(count(len(outcome.had), "was there", "were there"))
    if outcome.failed:
        parts.append(f"{len(outcome.failed)} failed")
    tell(f"{outcome.tier}: {'; '.join(parts)}")
