"""Compares two caches or bundles, for `gearcache explain A B`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gearcache.cache.layout import MANIFEST_NAME, Layout
from gearcache.commands.common import (
    Exit,
    count,
    note,
    note_other_formats,
    print_json,
    seconds_text,
    stop,
    warn,
)
from gearcache.commands.output.printing import echo
from gearcache.reporting.deploys import compare, read_side
from gearcache.reporting.safe_texts import finite

_SHOWN = 40
_UNREAD_SHOWN = 5


def are_caches(*names: str) -> bool:
    """Whether each name is the name of a cache folder or of a bundle, and not of an entry."""
    paths = [Path(name) for name in names]
    return all(
        (path.is_dir() and not (path / MANIFEST_NAME).exists()) or (path.is_file() and path.name != MANIFEST_NAME)
        for path in paths
    )


def explain_caches(a: Path, b: Path, *, says_by_code: bool, as_json: bool) -> None:
    """Print the entries that two caches share, the first difference of the others, and what a deploy would compile."""
    for side in (a, b):
        if side.is_dir():
            if not Layout(side).bucket.exists():
                note(f"there is no cache of this version at `{side}`")
            note_other_formats(Layout(side.absolute()))
    found = finite(compare(read_side(a), read_side(b)))
    if as_json:
        print_json("explain", found)
    else:
        _print(found)
    for fault in found["faults"]:
        warn(fault)
    if says_by_code and (found["compiles"]["entries"] or found["unread_b"]):
        stop(Exit.WRONG)


def _print(found: dict[str, Any]) -> None:
    for side in ("a", "b"):
        held = found[side]
        number = count(held["entries"], "entry", "entries")
        echo(f"{side.upper()}  {held['path']}: {number} with {count(held['gears'], 'gear')}")
    echo("", compiled_text(found))
    shared = found["shared"]
    same = [row for row in shared if not (row["gears_only_a"] or row["compiles"] or row["trace"])]
    echo("", f"{count(len(shared), 'entry', 'entries')} in both, {len(same)} of them without a difference")
    _listed([line for row in shared if row not in same for line in _shared_lines(row)])
    for side, other in (("b", "a"), ("a", "b")):
        rows = found[f"only_{side}"]
        took = sum(row["compile_seconds"] for row in rows)
        gears = sum(row["gears"] for row in rows)
        echo(
            "",
            f"{count(len(rows), 'entry', 'entries')} only in {side.upper()}"
            + (f": {count(gears, 'gear')}, compiled in {seconds_text(took)}" if rows else ""),
        )
        _listed([line for row in rows for line in _alone_lines(row, side.upper(), other.upper())])


def compiled_text(found: dict[str, Any]) -> str:
    """Return, as a sentence, what a host with the entries of A compiles to serve the deploy of B."""
    anew, unread = found["compiles"], found["unread_b"]
    text = "A host that holds A and runs what B was made for compiles nothing"
    if anew["entries"]:
        entries = count(anew["entries"], "entry", "entries")
        took = f", which took {seconds_text(anew['seconds'])}" if anew["seconds"] else ""
        text = f"{text.removesuffix('nothing')}{count(anew['gears'], 'gear')} of {entries}{took}"
    if unread:
        text += f"; {count(len(unread), 'entry', 'entries')} of B cannot be read: {', '.join(unread[:_UNREAD_SHOWN])}"
    return text


def _shared_lines(row: dict[str, Any]) -> list[str]:
    lines = [_name(row)]
    names = row["names"]
    for side in ("a", "b"):
        if gears := [names.get(gear, gear) for gear in row[f"gears_only_{side}"]]:
            lines.append(f"  gears only in {side.upper()}: {'; '.join(gears)}")
    if row["compiles"]:
        parts = (text.partition(" (") for text in row["compiles"])  # the layout follows the gear if it is the reason
        anew = (f"{names.get(gear, gear)}{space}{layout}" for gear, space, layout in parts)
        lines.append(f"  a host with A compiles: {'; '.join(anew)}")
    if row["trace"]:
        lines.append(f"  the traces depend on: {row['trace']}{_more(row['more'])}")
    return lines


def _alone_lines(row: dict[str, Any], side: str, other: str) -> list[str]:
    differs = row["differs"]
    if differs is None:
        return [_name(row), f"  {other} has no entry of this method"]
    values = f"{side} has {differs['this']}, {other} has {differs['other']}"
    return [_name(row), f"  {differs['fact']}: {values}{_more(differs['more'])}; nearest is {differs['from']}"]


def _name(row: dict[str, Any]) -> str:
    return f"{row['name']} {row['ranks']}".rstrip()


def _more(number: int) -> str:
    return f" and {number} more" if number else ""


def _listed(lines: list[str]) -> None:
    for line in lines[:_SHOWN]:
        echo(f"  {line}")
    if len(lines) > _SHOWN:
        echo(f"  … {len(lines) - _SHOWN} more lines, see --json")
