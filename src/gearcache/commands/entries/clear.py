"""`gearcache clear`: removes entries and the blobs that only they need."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from gearcache.cache.admin.catalog import Catalog, Removal
from gearcache.cache.admin.row import EntryRow, total_size
from gearcache.cache.blob_folder import present_size
from gearcache.cache.manifest import OtherFormat
from gearcache.commands.common import (
    AGE,
    Exit,
    common_options,
    count,
    dry_run_option,
    entry_plain,
    layout_at,
    note,
    note_faults,
    print_json,
    size_text,
    stop,
    user_text,
    warn,
)
from gearcache.commands.entries.entry_names import complete_entry, find_all
from gearcache.commands.output.printing import tell
from gearcache.errors import CorruptEntry


@click.command("clear")
@click.option(
    "--entry",
    "names",
    multiple=True,
    shell_complete=complete_entry,
    help="Remove this entry, or all of a method (`*`: any text). Repeatable.",
)
@click.option("--older-than", type=AGE, help="Remove entries unused for this long, e.g. `7d`.")
@click.option(
    "--all", "everything", is_flag=True, help="Remove all entries, damaged ones too, leftovers and the quarantine."
)
@click.option("--yes", is_flag=True, help="Do not ask before `--all` removes, as it does on a terminal.")
@click.option("--wait", type=AGE, default="0s", show_default=True, help="Wait so long for processes to end.")
@dry_run_option
@common_options
def command(
    names: tuple[str, ...],
    older_than: float | None,
    everything: bool,
    yes: bool,
    wait: float,
    dry_run: bool,
    cache_dir: Path | None,
    as_json: bool,
) -> None:
    """Remove entries, and the blobs that no other entry needs.

    An entry that a live process has loaded stays, and its users are named; `--wait` waits for them. Exit code 4 then.
    """
    if sum((bool(names), older_than is not None, everything)) != 1:
        raise click.UsageError("say what to remove: one of --entry, --older-than and --all")
    catalog = Catalog(layout_at(cache_dir))
    if not catalog.layout.bucket.exists():  # nothing to lock either
        report_removal("clear", Removal(), catalog, dry_run=dry_run, as_json=as_json)
        return
    entries = _selected_entries(catalog, names, older_than)
    if everything and not (yes or dry_run) and sys.stdin is not None and sys.stdin.isatty():
        size = size_text(total_size(entries))
        question = f"Remove all {count(len(entries), 'entry', 'entries')} ({size}) of `{catalog.layout.root}`?"
        if not click.confirm(question, err=True):
            note("nothing was removed")
            stop(Exit.INTERRUPTED)
    outcome = catalog.remove(entries, wait=wait, only_unused=older_than is not None, dry_run=dry_run)
    if everything:
        _clear_rest(catalog, outcome, dry_run)
    elif older_than is not None:
        catalog.clear_quarantine(outcome, max_age=older_than, dry_run=dry_run)
    report_removal("clear", outcome, catalog, dry_run=dry_run, as_json=as_json)


def _selected_entries(catalog: Catalog, names: tuple[str, ...], older_than: float | None) -> list[EntryRow]:
    if names:
        return find_all(catalog, names)
    entries = catalog.entries()
    note_faults(catalog)
    if older_than is None:
        return entries
    limit = time.time() - older_than
    return [entry for entry in entries if entry.last_use < limit]


def _clear_rest(catalog: Catalog, outcome: Removal, dry_run: bool) -> None:
    """Remove damaged entries and what belongs to no entry: blobs of dead writers, and the quarantine."""
    damaged = catalog.damaged()
    if dry_run:
        outcome.freed += sum(present_size(fault.path) or 0 for fault in damaged)
    else:
        catalog.set_aside(damaged)
    if damaged:
        note(f"{'would remove' if dry_run else 'removed'} {count(len(damaged), 'damaged entry', 'damaged entries')}")
    outcome.add(catalog.collect(dry_run=dry_run))
    catalog.clear_quarantine(outcome, dry_run=dry_run)


def report_removal(name: str, outcome: Removal, catalog: Catalog, *, dry_run: bool, as_json: bool) -> None:
    """Print what was removed and what was kept, and end with the matching exit code."""
    users = {entry.identity: catalog.users(entry) for entry in outcome.in_use}
    if as_json:
        print_json(name, _plain(outcome, catalog, users, dry_run))
    else:
        verb = "would remove" if dry_run else "removed"
        for entry in outcome.removed:
            tell(f"{verb} {entry.short_name}{f' {entry.ranks}' if entry.ranks else ''}, {size_text(entry.size)}")
        blobs = f" and {count(outcome.blobs, 'blob')}" if outcome.blobs else ""
        blobs += f" and {count(outcome.quarantined, 'file')} in quarantine" if outcome.quarantined else ""
        total = count(len(outcome.removed), "entry", "entries")
        tell(f"{verb} {total}{blobs}, {size_text(outcome.freed)}")
    for fault in outcome.faults:
        warn(str(fault))
    for entry in outcome.in_use:
        user_names = ", ".join(map(user_text, users[entry.identity]))
        warn(f"{entry.short_name} is in use by {f'process {user_names}' if user_names else 'a process'} and stays")
    if any(not isinstance(fault, CorruptEntry) or isinstance(fault, OtherFormat) for fault in outcome.faults):
        stop(Exit.CACHE)
    if outcome.faults:
        note("`gearcache verify --repair` moves what is damaged to the quarantine")
        stop(Exit.WRONG)
    if outcome.in_use:
        if not as_json:
            note("`--wait 60s` of `clear` waits for them")
        stop(Exit.IN_USE)


def _plain(outcome: Removal, catalog: Catalog, users: Any, dry_run: bool) -> dict[str, Any]:
    return {
        "removed": [entry_plain(entry, catalog) for entry in outcome.removed],
        "in_use": [
            {**entry_plain(entry, catalog), "users": list(map(asdict, users[entry.identity]))}
            for entry in outcome.in_use
        ],
        "faults": [str(fault) for fault in outcome.faults],
        "blobs": outcome.blobs,
        "quarantined": outcome.quarantined,
        "freed": outcome.freed,
        "dry_run": dry_run,
    }
