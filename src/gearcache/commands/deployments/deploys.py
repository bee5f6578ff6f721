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

_SHOWN = 40
_UNREAD_SHOWN = 5


def are_caches(*names: str) -> bool:
    """Whether each name is the name of a cache folder or of a bundle, and not of an entry."""
    paths = [Path(name) for name in names]
    return all(
        (path.is_dir() and not (path / MANIFEST_NAME).exists()) or (path.is_file() and path.name != MANIFEST_NAME)
        for path in paths
    )


def explain_caches(path_a: Path, path_b: Path, *, says_by_code: bool, as_json: bool) -> None:
    """Print the entries that two caches share, the first difference of the others, and what a deploy would compile."""
    for side in (path_a, path_b):
        if side.is_dir():
            if not Layout(side).bucket.exists():
                note(f"there is no cache of this version at `{side}`")
            note_other_formats(Layout(side.absolute()))
    comparison = compare(read_side(path_a), read_side(path_b))
    if as_json:
        print_json("explain", comparison)
    else:
        _print(comparison)
    for fault in comparison["faults"]:
        warn(fault)
    if says_by_code and (comparison["compiles"]["entries"] or comparison["unread_b"]):
        stop(Exit.WRONG)


def _print(comparison: dict[str, Any]) -> None:
    for side in ("a", "b"):
        summary = comparison[side]
        number = count(summary["entries"], "entry", "entries")
        echo(f"{side.upper()}  {summary['path']}: {number} with {count(summary['gears'], 'graph')}")
    echo("", compiled_text(comparison))
    shared = comparison["shared"]
    unchanged = [entry for entry in shared if not (entry["gears_only_a"] or entry["compiles"] or entry["trace"])]
    echo("", f"{count(len(shared), 'entry', 'entries')} in both, {len(unchanged)} of them without a difference")
    _print_lines([line for entry in shared if entry not in unchanged for line in _shared_lines(entry)])
    for side, other in (("b", "a"), ("a", "b")):
        rows = comparison[f"only_{side}"]
        seconds = sum(entry["compile_seconds"] for entry in rows)
        gears = sum(entry["gears"] for entry in rows)
        echo(
            "",
            f"{count(len(rows), 'entry', 'entries')} only in {side.upper()}"
            + (f": {count(gears, 'graph')}, compiled in {seconds_text(seconds)}" if rows else ""),
        )
        _print_lines([line for entry in rows for line in _alone_lines(entry, side.upper(), other.upper())])


def compiled_text(comparison: dict[str, Any]) -> str:
    """Return, as a sentence, what a host with the entries of A compiles to serve the deploy of B."""
    compiles, unread = comparison["compiles"], comparison["unread_b"]
    text = "A host that holds A and runs what B was made for compiles nothing"
    if compiles["entries"]:
        entries = count(compiles["entries"], "entry", "entries")
        duration = f", which took {seconds_text(compiles['seconds'])}" if compiles["seconds"] else ""
        text = f"{text.removesuffix('nothing')}{count(compiles['gears'], 'graph')} of {entries}{duration}"
    if unread:
        text += f"; {count(len(unread), 'entry', 'entries')} of B cannot be read: {', '.join(unread[:_UNREAD_SHOWN])}"
    return text


def _shared_lines(entry: dict[str, Any]) -> list[str]:
    lines = [_name(entry)]
    names = entry["names"]
    for side in ("a", "b"):
        if gears := [names.get(gear, gear) for gear in entry[f"gears_only_{side}"]]:
            lines.append(f"  gears only in {side.upper()}: {'; '.join(gears)}")
    if entry["compiles"]:
        parts = (text.partition(" (") for text in entry["compiles"])  # the layout follows the gear if it is the reason
        gear_texts = (f"{names.get(gear, gear)}{space}{layout}" for gear, space, layout in parts)
        lines.append(f"  a host with A compiles: {'; '.join(gear_texts)}")
    if entry["trace"]:
        lines.append(f"  the traces depend on: {entry['trace']}{_more(entry['more'])}")
    return lines


def _alone_lines(entry: dict[str, Any], side: str, other: str) -> list[str]:
    differs = entry["differs"]
    if differs is None:
        return [_name(entry), f"  {other} has no entry of this method"]
    values = f"{side} has {differs['this']}, {other} has {differs['other']}"
    return [_name(entry), f"  {differs['fact']}: {values}{_more(differs['more'])}; nearest is {differs['from']}"]


def _name(entry: dict[str, Any]) -> str:
    return f"{entry['name']} {entry['ranks']}".rstrip()


def _more(number: int) -> str:
    return f" and {number} more" if number else ""


def _print_lines(lines: list[str]) -> None:
    for line in lines[:_SHOWN]:
        echo(f"  {line}")
    if len(lines) > _SHOWN:
        echo(f"  … {len(lines) - _SHOWN} more lines, see --json")
