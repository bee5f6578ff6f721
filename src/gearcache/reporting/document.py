"""Collects everything that `gearcache report` shows, as JSON data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.remote.tier_counts import tier_counts
from gearcache.commands.figures.savings import limits_in_force, used_by_methods, used_in_all, used_plain
from gearcache.errors import CacheError
from gearcache.reporting.entries import EntryDetails
from gearcache.reporting.methods import method_rows
from gearcache.reporting.recorded import advice_for, read_recorded
from gearcache.reporting.safe_texts import shown
from gearcache.version import __version__


def report_document(
    catalog: Catalog, environ: Mapping[str, str], *, traces: Sequence[Path] = (), details: int = 1000
) -> dict[str, Any]:
    """Return the report of a cache. `traces` are files of `GEARCACHE_TRACE`.

    Only the manifests of the `details` last used entries are read. Anything that cannot be read is named in `faults`.
    """
    now = catalog.clock()
    entries = catalog.entries()
    faults = [shown(str(fault)) for fault in catalog.faults]
    methods = used_by_methods(entries, catalog.layout)
    total = used_in_all(methods)
    reader = EntryDetails(catalog, details)
    rows = reader.plain(entries)
    faults += reader.faults
    starts, records = _read_traces(traces, faults)
    return {
        "made": round(now, 3),
        "gearcache": __version__,
        "root": shown(str(catalog.layout.root)),
        "exists": catalog.layout.bucket.exists(),
        "overview": used_plain(catalog, total, limits_in_force(environ)),
        "reasons": [{"reason": shown(each), "advice": advice_for(each)} for each in sorted(total.missed)],
        "methods": method_rows(methods, rows, records),
        "entries": rows,
        "tiers": [{**each, "tier": shown(each["tier"])} for each in tier_counts(catalog.layout)],
        "misses": _misses(records),
        "starts": starts,
        "faults": faults,
    }


def _read_traces(traces: Sequence[Path], faults: list[str]) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
    starts: list[dict[str, Any]] = []
    records: list[list[dict[str, Any]]] = []
    for path in traces:
        try:
            start, methods = read_recorded(path)
        except CacheError as error:
            faults.append(shown(str(error)))
            continue
        records.append([{**record, "start": len(starts), "began": start["began"]} for record in methods])
        starts.append(start)
    return starts, records


def _misses(records: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {"method": record["method"], "start": index, **reason}
        for index, methods in enumerate(records)
        for record in methods
        for reason in record["reasons"]
    ]
