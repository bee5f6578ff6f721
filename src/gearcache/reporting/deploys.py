"""Compares two caches or bundles: the entries that both have, and the differences of the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.packed.bundle import bundle_manifests
from gearcache.cache.admin.row import EntryRow, Identity, entry_of
from gearcache.cache.keys.key import short_name
from gearcache.cache.layout import Layout
from gearcache.cache.manifest import Manifest
from gearcache.errors import CacheError
from gearcache.readable.differences import differing_lines
from gearcache.reporting.compiled_anew import Anew, gears_to_compile
from gearcache.reporting.entries import first_leaf
from gearcache.reporting.safe_texts import gear_name, names_of, number, shown

#: How many entries of a method, the newest, an entry is compared with.
_COMPARED = 20


class Side(Struct, frozen=True):
    """The content of one cache or bundle; `read` returns the manifest of an entry or raises `CacheError`."""

    path: Path
    entries: dict[Identity, EntryRow]
    read: Callable[[EntryRow], Manifest]
    faults: list[str] = field(default_factory=list)
    #: Entries that exist but cannot be read.
    unread: set[Identity] = field(default_factory=set)


def read_side(path: Path) -> Side:
    """Read a cache folder or a bundle; `CacheError` for a bundle that cannot be read."""
    if path.is_dir():
        catalog = Catalog(Layout(path))
        entries = {entry.identity: entry for entry in catalog.entries()}
        unread = {damaged for fault in catalog.faults if (damaged := _identity(catalog.layout, fault)) is not None}
        return Side(path, entries, catalog.read, [shown(str(fault)) for fault in catalog.faults], unread)
    manifests = dict(bundle_manifests(path))
    entries = {identity: entry_of(manifest, identity, 0) for identity, manifest in manifests.items()}
    return Side(path, entries, lambda entry: manifests[entry.identity])


def _identity(layout: Layout, fault: CacheError) -> Identity | None:
    path = getattr(fault, "path", None)
    try:
        return layout.identify(path) if isinstance(path, Path) else None
    except ValueError:
        return None


def compare(ours: Side, theirs: Side) -> dict[str, Any]:
    """Return the common entries and those of one side only, as JSON data; the second side is the one to be deployed.

    `compiles` is what a host with the entries of the first side would compile to serve the second side's deploy.
    Entries of the second side that cannot be read are in `unread_b`: nothing is known about them.
    """
    faults = [*ours.faults, *theirs.faults]
    unread = set(theirs.unread)
    both = sorted(ours.entries.keys() & theirs.entries.keys())
    shared = [_shared(each, ours, theirs, faults, unread) for each in both]
    only_a, only_b = _only_here(ours, theirs, faults), _only_here(theirs, ours, faults)
    partly_compiled = [row for row in shared if row["compiles"]]
    return {
        "a": _summary(ours),
        "b": _summary(theirs),
        "compiles": {
            "entries": len(only_b) + len(partly_compiled),
            "gears": sum(row["gears"] for row in only_b.values())
            + sum(len(row["compiles"]) for row in partly_compiled),
            "seconds": round(
                sum(row["compile_seconds"] for row in only_b.values())
                + sum(row["compiles_seconds"] for row in partly_compiled),
                3,
            ),
        },
        "shared": shared,
        # An entry that the second side has but cannot read does not count as absent.
        "only_a": [row for identity, row in only_a.items() if identity not in theirs.unread],
        "only_b": list(only_b.values()),
        "unread_b": sorted(short_name(f"{label}-{digest}") for label, digest, _ in unread),
        "faults": faults,
    }


def _summary(side: Side) -> dict[str, Any]:
    gears = sum(len(entry.gears) for entry in side.entries.values())
    return {"path": shown(str(side.path)), "entries": len(side.entries), "gears": gears}


def _plain(entry: EntryRow) -> dict[str, Any]:
    return {
        "method": shown(entry.method),
        "name": entry.short_name,
        "key": entry.digest,
        "ranks": shown(entry.ranks),
        "gears": len(entry.gears),
        "compile_seconds": round(number(entry.compile_seconds), 3),
    }


def _shared(identity: Identity, side_a: Side, side_b: Side, faults: list[str], unread: set[Identity]) -> dict[str, Any]:
    """Compare entries with equal keys. Returns the gears that one side lacks, the first dependency that only one side's
    traces have, and the gears that a host with our entry would compile: all of theirs, if ours cannot be read.
    """
    ours, theirs = side_a.entries[identity], side_b.entries[identity]
    first, more = "", 0
    to_compile: list[Anew] = []
    seconds = 0.0
    try:
        wanted = side_b.read(theirs)
    except CacheError as error:
        faults.append(shown(str(error)))
        unread.add(identity)
    else:
        try:
            stored = side_a.read(ours)
            lines = list(differing_lines(wanted, stored))
            first, more = (lines[0], len(lines) - 1) if lines else ("", 0)
            to_compile = gears_to_compile(wanted, stored)
            seconds = sum(each.seconds for each in to_compile)
        except CacheError as error:
            faults.append(shown(str(error)))
            to_compile, seconds = [Anew(gear, "", 0.0) for gear in theirs.gears], number(theirs.compile_seconds)
    first = first.replace("only wanted:", "only b:", 1).replace("only stored:", "only a:", 1)
    return {
        **_plain(theirs),
        "gears_only_a": [gear_name(gear) for gear in ours.gears if gear not in theirs.gears],
        "gears_only_b": [gear_name(gear) for gear in theirs.gears if gear not in ours.gears],
        "compiles": [gear_name(each.gear) + (f" ({shown(each.layout)})" if each.layout else "") for each in to_compile],
        "names": names_of(map(gear_name, (*ours.gears, *theirs.gears))),
        "compiles_seconds": round(seconds, 3),
        "trace": shown(first),
        "more": more,
    }


def _only_here(side: Side, other: Side, faults: list[str]) -> dict[Identity, dict[str, Any]]:
    """Return the entries that only one side has, each with the nearest one of the other side and the difference."""
    by_label: dict[str, list[EntryRow]] = {}
    for entry in sorted(other.entries.values(), key=lambda entry: -entry.created):
        by_label.setdefault(entry.label, []).append(entry)
    only_here = {}
    for identity, entry in sorted(side.entries.items()):
        if identity not in other.entries:
            damaged = {"from": entry.short_name, "fact": "entry", "this": "whole", "other": "damaged", "more": 0}
            is_damaged = identity in other.unread
            candidates = by_label.get(entry.label, [])
            differs = damaged if is_damaged else _nearest(side, entry, other, candidates, faults)
            only_here[identity] = {**_plain(entry), "differs": differs}
    return only_here


def _nearest(
    side: Side, entry: EntryRow, other: Side, candidates: list[EntryRow], faults: list[str]
) -> dict[str, Any] | None:
    best: dict[str, Any] | None = None
    same_ranks = [each for each in candidates if each.ranks == entry.ranks] or candidates
    try:
        manifest = side.read(entry)
    except CacheError as error:
        faults.append(shown(str(error)))
        return None
    for candidate in same_ranks[:_COMPARED]:
        try:
            difference = first_leaf(manifest, other.read(candidate))
        except CacheError:
            continue  # removed or damaged in the meantime; reported where it is listed
        if difference is None:
            difference = {"fact": "ranks", "this": shown(entry.ranks), "other": shown(candidate.ranks), "more": 0}
        if best is None or difference["more"] < best["more"]:
            best = {"from": shown(candidate.short_name), **difference}
    return best
