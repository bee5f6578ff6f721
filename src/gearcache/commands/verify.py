"""`gearcache verify`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from gearcache.cache.admin.verify import Verification, verify
from gearcache.cache.layout import Layout
from gearcache.commands.common import (
    Exit,
    cache_dir_option,
    count,
    environment_signer,
    json_option,
    layout_at,
    note,
    note_other_formats,
    print_json,
    size_text,
    stop,
)
from gearcache.commands.printing import echo


@click.command("verify")
@click.option("--repair", is_flag=True, help="Move what is damaged to the quarantine, and delete leftovers.")
@cache_dir_option
@json_option
def command(repair: bool, cache_dir: Path | None, as_json: bool) -> None:
    """Read every manifest and blob and compare all digests.

    Exit code 1 when an entry cannot be used. What is damaged would be found at a load too, and be compiled again:
    `--repair` does it now. Leftovers of killed processes are told, and are no fault.
    """
    layout = layout_at(cache_dir)
    found = _verify_with_bar(layout, repair)
    if as_json:
        print_json(_plain(found))
    else:
        for fault in found.faults:
            state = ", repaired" if fault.repaired else ""
            echo(f"{fault.kind}: {fault.path}: {fault.reason}{state}")
        read = f"{count(found.entries, 'entry', 'entries')} and {count(found.blobs, 'blob')}"
        echo(f"{read} are sound, {size_text(found.size)}")
        kinds = Counter(fault.kind for fault in found.faults if not fault.repaired)
        if kinds and not repair:
            listed = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
            note(f"{listed}; `gearcache verify --repair` puts right what can be")
    note_other_formats(layout)
    if not found.is_sound:
        stop(Exit.WRONG)


def _verify_with_bar(layout: Layout, repair: bool) -> Verification:
    signer = environment_signer()
    if not sys.stderr.isatty():
        return verify(layout, repair=repair, signer=signer)
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("verify", total=None)
        return verify(
            layout,
            repair=repair,
            signer=signer,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )


def _plain(found: Verification) -> dict[str, object]:
    return {
        "sound": found.is_sound,
        "entries": found.entries,
        "blobs": found.blobs,
        "size": found.size,
        "faults": [
            {"path": str(fault.path), "kind": fault.kind, "reason": fault.reason, "repaired": fault.repaired}
            for fault in found.faults
        ],
    }
