"""Collects everything that `gearcache report` shows, as JSON data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gearcache.cache.admin.catalog import Catalog, Removal
from gearcache.cache.admin.counts import Counts
from gearcache.cache.admin.row import EntryRow
from gearcache.cache.limits import Limits
from gearcache.cache.remote.tier_counts import tier_counts
from gearcache.commands.common import short_name
from gearcache.commands.figures.savings import limits_in_force, used_by_methods, used_in_all, used_plain
from gearcache.commands.tiers.tier_table import tier_plain
from gearcache.errors import CacheError
from gearcache.reporting.deploys import compare, read_side
from gearcache.reporting.entries import EntryDetails
from gearcache.reporting.methods import method_rows
from gearcache.reporting.recorded import advice_for, read_recorded
from gearcache.reporting.safe_texts import shown
from gearcache.version import __version__

_NEXT = 10
#: The fields of a record that count calls by name.
_COUNTS = ("gears", "padded", "eager_reasons", "refused_errors")


def report_document(
    catalog: Catalog,
    environ: Mapping[str, str],
    *,
    traces: Sequence[Path] = (),
    other: Path | None = None,
    details: int = 1000,
) -> dict[str, Any]:
    """Return the report of a cache. `traces` are files of `GEARCACHE_TRACE`, `other` is a cache or bundle to compare.

    Only the manifests of the `details` last used entries are read. Anything that cannot be read is named in `faults`.
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
    starts, records = _read_traces(traces, faults)
    return {
        "made": round(now, 3),
        "gearcache": __version__,
        "root": shown(str(catalog.layout.root)),
        "exists": catalog.layout.bucket.exists(),
        "overview": {
            **used_plain(catalog, counts, total, limits),
            "eviction": _eviction(catalog, entries, Limits(*limits)),
        },
        "reasons": [{"reason": shown(each), "advice": advice_for(each)} for each in sorted(total.missed)],
        "methods": method_rows(methods, entries, rows, counts, records),
        "entries": rows,
        "tiers": [{**each, "tier": shown(each["tier"])} for each in map(tier_plain, tier_counts(catalog.layout))],
        "misses": _misses(records),
        "starts": starts,
        "deploys": compare(read_side(catalog.layout.root), read_side(other)) if other is not None else None,
        "faults": faults,
    }


def _read_traces(traces: Sequence[Path], faults: list[str]) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
    starts: list[dict[str, Any]] = []
    records: list[list[dict[str, Any]]] = []
    paths: list[Path] = []
    for path in traces:
        try:
            start, methods = read_recorded(path)
        except CacheError as error:
            faults.append(shown(str(error)))
            continue
        equal = (n for n, each in enumerate(starts) if _is_same(start, each) or (start, methods) == (each, records[n]))
        position = next(equal, None)
        if position is None:
            starts.append(start)
            records.append(methods)
            paths.append(path)
            continue
        # A copy that was made while the process ran: the later one includes the earlier one.
        is_later = _progress(start, methods) > _progress(starts[position], records[position])
        counted_path, other_path = (path, paths[position]) if is_later else (paths[position], path)
        if is_later:
            starts[position], records[position], paths[position] = start, methods, path
        faults.append(
            shown(f"`{other_path}` holds the same recording as `{counted_path}`, not a later one, and is not counted")
        )
    names = Counter(start["file"] for start in starts)
    for index, (start, path) in enumerate(zip(starts, paths, strict=True)):
        if names[start["file"]] > 1:
            start["file"] = shown(str(path))
        for record in records[index]:
            record |= {"start": index, "began": start["began"]}
    return starts, records


def _is_same(start: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two recordings belong to the same process, according to their process id and start time."""
    return start["pid"] > 0 and start["began"] > 0 and all(start[name] == other[name] for name in ("pid", "began"))


def _progress(start: dict[str, Any], methods: list[dict[str, Any]]) -> tuple[bool, int, float]:
    """Return the values that grow from one recording of a process to the next."""
    counts = sum(sum(record[name].values()) for record in methods for name in _COUNTS)
    return start["final"] is True, counts, start["seconds"]


def _misses(records: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {"method": record["method"], "start": index, **reason}
        for index, methods in enumerate(records)
        for record in methods
        for reason in record["reasons"]
    ]


def _eviction(catalog: Catalog, entries: list[EntryRow], limits: Limits) -> dict[str, Any]:
    """Return how many entries a dry run of `prune` would remove for the limits, and the next entries to be removed.

    Entries that a process uses stay, and others are removed instead.
    """
    pruned = catalog.prune(max_size=limits.max_size, max_age=limits.max_age, dry_run=True) if limits else Removal()
    order = {entry.identity: place for place, entry in enumerate(pruned.removed)}
    used = {entry.identity for entry in pruned.in_use}
    oldest = sorted(entries, key=lambda entry: (entry.last_use, entry.created, entry.identity))
    oldest.sort(key=lambda entry: order.get(entry.identity, len(order)))
    holders = Counter(digest for entry in entries for digest in entry.blob_sizes())
    following = []
    for entry in oldest[:_NEXT]:
        is_over = entry.identity in order
        in_use = not is_over and (entry.identity in used or bool(catalog.users(entry)))
        freed = 0 if in_use else entry.own_size
        for digest, size in () if in_use else entry.blob_sizes().items():
            holders[digest] -= 1
            freed += 0 if holders[digest] else size
        following.append(
            {
                "name": shown(short_name(entry)),
                "ranks": shown(entry.ranks),
                "frees": freed,
                "last_use": round(entry.last_use, 3),
                "in_use": in_use,
                "is_over": is_over,
            }
        )
    return {"over_limits": len(order), "next": following}
