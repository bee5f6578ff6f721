"""All that `gearcache report` shows, as JSON data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.counts import Counts
from gearcache.cache.admin.evict import Limits, entries_to_evict
from gearcache.cache.admin.row import EntryRow
from gearcache.cache.remote.tier_counts import tier_counts
from gearcache.commands.common import short_name
from gearcache.commands.tier_table import tier_plain
from gearcache.commands.used import Used, limits_in_force, used_by_methods, used_in_all, used_plain
from gearcache.errors import CacheError
from gearcache.reporting.deploys import compare, read_side
from gearcache.reporting.entries import EntryDetails
from gearcache.reporting.recorded import advice_for, read_recorded
from gearcache.reporting.shown import shown
from gearcache.reporting.traffic import traffic_of
from gearcache.version import __version__

_NEXT = 10


def report_document(
    catalog: Catalog,
    environ: Mapping[str, str],
    *,
    traces: Sequence[Path] = (),
    other: Path | None = None,
    details: int = 1000,
) -> dict[str, Any]:
    """Return the report of a cache. `traces` are files of `GEARCACHE_TRACE`, `other` a cache or bundle to compare with.

    Of the `details` entries that were used last the manifests are read. What cannot be read is named in `faults`.
    """
    now = catalog.clock()
    entries, counts = catalog.entries(), Counts(catalog.layout)
    faults = [shown(str(fault)) for fault in (*catalog.faults, *filter(None, [counts.fault]))]
    methods = used_by_methods(entries, counts)
    total = used_in_all(entries, counts, methods)
    limits = limits_in_force(environ)
    reader = EntryDetails(catalog, counts, details)
    rows = reader.plain(entries)
    faults += reader.faults
    stored: dict[str, list[str]] = {}
    for row in rows:
        stored.setdefault(row["method"], []).extend(gear["gear"] for gear in row["gears"])
    starts, records = _recorded(traces, faults)
    return {
        "made": round(now, 3),
        "gearcache": __version__,
        "root": shown(str(catalog.layout.root)),
        "exists": catalog.layout.bucket.exists(),
        "overview": {
            **used_plain(catalog, counts, total, limits),
            "eviction": _eviction(catalog, entries, Limits(*limits), now),
        },
        "reasons": [{"reason": shown(each), "advice": advice_for(each)} for each in sorted(total.missed)],
        "methods": [_method(each, stored, records) for each in (*methods, *_unknown(methods, records))],
        "entries": rows,
        "tiers": [{**each, "tier": shown(each["tier"])} for each in map(tier_plain, tier_counts(catalog.layout))],
        "misses": _misses(records),
        "starts": starts,
        "deploys": compare(read_side(catalog.layout.root), read_side(other)) if other is not None else None,
        "faults": faults,
    }


def _recorded(traces: Sequence[Path], faults: list[str]) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
    starts: list[dict[str, Any]] = []
    records: list[list[dict[str, Any]]] = []
    paths: list[Path] = []
    for path in traces:
        try:
            start, methods = read_recorded(path)
        except CacheError as error:
            faults.append(shown(str(error)))
            continue
        if (start, methods) in zip(starts, records, strict=True):
            faults.append(shown(f"`{path}` holds the same recording as a `--trace` before it, and is counted once"))
            continue
        starts.append(start)
        records.append(methods)
        paths.append(path)
    names = Counter(start["file"] for start in starts)
    for index, (start, path) in enumerate(zip(starts, paths, strict=True)):
        if names[start["file"]] > 1:
            start["file"] = shown(str(path))
        for record in records[index]:
            record["start"] = index
    return starts, records


def _unknown(methods: Sequence[Used], records: list[list[dict[str, Any]]]) -> list[Used]:
    """Return the methods that recorded processes have called, and of which the cache knows nothing."""
    known = {shown(each.method) for each in methods}
    names = dict.fromkeys(record["method"] for recorded in records for record in recorded)
    return [Used(name) for name in names if name not in known]


def _method(used: Used, stored: dict[str, list[str]], records: list[list[dict[str, Any]]]) -> dict[str, Any]:
    name = shown(used.method)
    own = [record for methods in records for record in methods if record["method"] == name]
    return {
        "method": name,
        **used.to_plain(),
        "last_use": round(max((entry.last_use for entry in used.entries), default=0.0), 3),
        "traffic": traffic_of(own, stored.get(name, [])),
    }


def _misses(records: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {"method": record["method"], "start": index, **reason}
        for index, methods in enumerate(records)
        for record in methods
        for reason in record["reasons"]
    ]


def _eviction(catalog: Catalog, entries: list[EntryRow], limits: Limits, now: float) -> dict[str, Any]:
    """Return what the limits would take at the next publish, and who comes first then, in use or not."""
    going = entries_to_evict(entries, limits, now)
    holders = Counter(digest for entry in entries for digest in entry.blob_sizes())
    oldest = sorted(entries, key=lambda entry: (entry.last_use, entry.created, entry.identity))
    gone = {entry.identity for entry in going}
    following = []
    for entry in oldest[:_NEXT]:
        freed = entry.own_size
        for digest, size in entry.blob_sizes().items():
            holders[digest] -= 1
            freed += 0 if holders[digest] else size
        following.append(
            {
                "name": shown(short_name(entry)),
                "ranks": shown(entry.ranks),
                "frees": freed,
                "last_use": round(entry.last_use, 3),
                "in_use": bool(catalog.users(entry)),
                "is_over": entry.identity in gone,
            }
        )
    return {"over_limits": len(going), "next": following}
