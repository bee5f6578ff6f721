"""`gearcache verify`: checks every manifest and blob against its digest."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from gearcache.cache.admin.repair import Parts
from gearcache.cache.admin.verify import Fault, Verification, verify
from gearcache.cache.keys.key import short_name
from gearcache.cache.layout import Layout
from gearcache.commands.common import (
    Exit,
    common_options,
    count,
    environment_trust,
    layout_at,
    note,
    note_other_formats,
    print_json,
    size_text,
    stop,
    tell,
)
from gearcache.commands.output.printing import echo
from gearcache.commands.output.verbosity import bar, is_verbose
from gearcache.guards.gears.short_names import short_names
from gearcache.readable.held_gears import held_gears, without_blobs

_GEARS = Parts(held_gears, without_blobs)


#: With more gears than this, an entry's line shows only their number.
_GEARS_NAMED = 4


@click.command("verify")
@click.option("--repair", is_flag=True, help="Set aside what is damaged, keep sound gears, and delete leftovers.")
@common_options
def command(repair: bool, cache_dir: Path | None, as_json: bool) -> None:
    """Read every manifest and blob and compare all digests.

    Exit code 1 when an entry cannot be used as it was stored. What is damaged would be found at a load too, and the
    gears of its trace are compiled again. `--repair` moves it to the quarantine and keeps the sound gears: only those
    that are gone are compiled, at their next call or prewarm. Leftovers of killed processes are listed, and are not an
    error.
    """
    layout = layout_at(cache_dir)
    with bar("verify") as progress:
        verification = verify(layout, repair=repair, trust=environment_trust(), parts=_GEARS, progress=progress)
    if as_json:
        print_json("verify", {"root": str(layout.root), "exists": layout.bucket.exists(), **_plain(verification)})
    elif layout.bucket.exists():
        _print(verification, layout, repair)
    note_other_formats(layout)
    if not verification.is_sound:
        stop(Exit.WRONG)


def _print(verification: Verification, layout: Layout, repair: bool) -> None:
    for fault in verification.faults:
        if not fault.is_harmless:
            echo(f"{fault.kind}: {_sentence(fault, layout)}")
        elif is_verbose():
            echo(f"{fault.kind}: {fault.path}: {fault.reason}{', deleted' if fault.repaired else ''}")
    entries, blobs = count(verification.all_entries, "entry", "entries"), count(verification.all_blobs, "blob")
    if any(not fault.is_harmless for fault in verification.faults) and not repair:
        entries, blobs = f"{verification.entries} of {entries}", f"{verification.blobs} of {blobs}"
    elif repair:
        entries, blobs = count(verification.entries, "entry", "entries"), count(verification.blobs, "blob")
    tell(f"{entries} and {blobs} are sound, {size_text(verification.size)}")
    leftovers = [fault for fault in verification.faults if fault.is_harmless]
    if leftovers:
        verb = "deleted" if all(fault.repaired for fault in leftovers) else "left behind:"
        size = size_text(sum(fault.size for fault in leftovers))
        note(f"{verb} {count(len(leftovers), 'file')} that no entry needs, {size}")
    kinds = Counter(fault.kind for fault in verification.faults if not fault.repaired)
    if kinds and not repair:
        summary = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        note(f"{summary}; `gearcache verify --repair` puts right what can be")


def _sentence(fault: Fault, layout: Layout) -> str:
    """Return what is wrong, the entry and gears that are affected, and what was done."""
    names = ", ".join(short_name(name) for name in dict.fromkeys(fault.entries))
    if fault.kind != "incomplete":
        parts = f", {_gears(fault)}" if fault.parts else ""
        outcome = "; moved to the quarantine" if fault.repaired else ""
        return f"{f'{names}{parts}: ' if names else ''}{fault.path}: {fault.reason}{outcome}"
    ranks = layout.identify(fault.path)[2]
    text = f"{names}{f' {ranks}' if ranks else ''}: "
    if not fault.repaired:
        total = count(len(fault.parts) + len(fault.kept), "gear")
        unusable = f"{len(fault.parts)} of {total} cannot be used ({_gears(fault)}): " if fault.parts else ""
        return f"{text}{unusable}{fault.reason}"
    if fault.kept:
        return f"{text}removed {_gears(fault)}; kept the other {count(len(fault.kept), 'gear')}"
    reason = "no gear is left without it" if fault.parts else "its gears cannot be told apart"
    return f"{text}removed, {f'with {_gears(fault)}, ' if fault.parts else ''}as {reason}: {fault.reason}"


def _gears(fault: Fault) -> str:
    names = short_names([*fault.parts, *fault.kept])
    distinct = [names[text] for text in dict.fromkeys(fault.parts)]
    if len(distinct) > _GEARS_NAMED and not is_verbose():
        return count(len(distinct), "gear")
    listing = "; ".join(name or "without named dims" for name in distinct)
    return f"{'gear' if len(distinct) == 1 else 'gears'} {listing}"


def _plain(verification: Verification) -> dict[str, object]:
    return {
        "sound": verification.is_sound,
        "entries": verification.entries,
        "blobs": verification.blobs,
        "size": verification.size,
        "read": {"entries": verification.all_entries, "blobs": verification.all_blobs},
        "faults": [
            {
                "path": str(fault.path),
                "kind": fault.kind,
                "reason": fault.reason,
                "repaired": fault.repaired,
                "entries": list(fault.entries),
                "gears": list(fault.parts),
                "kept_gears": list(fault.kept),
            }
            for fault in verification.faults
        ],
    }
