"""The methods of a report: the counts of the cache for each, and the calls in recorded processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gearcache.cache.keys.key import CacheKey
from gearcache.commands.figures.savings import Used
from gearcache.reporting.safe_texts import names_of, shown
from gearcache.reporting.traffic import traffic_of

#: The fields of a record that are not empty for a method that was called.
_SIGNS = ("gears", "padded", "eager_reasons", "refused_errors", "shapes", "reasons")


def method_rows(
    methods: Sequence[Used], rows: Iterable[Mapping[str, Any]], records: Iterable[Sequence[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Return the methods as JSON data, in the order of `methods`; then those that the cache does not know.

    `rows` are the entries as `EntryDetails` returns them. As everywhere in a cache, classes of one name share a row.
    """
    entries: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        entries[row["label"]].append(row)
    recorded: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for process_records in records:
        for record in process_records:
            if any(record[sign] for sign in _SIGNS):
                recorded[CacheKey(record["method"], ()).safe_label].append(record)
    unknown = [Used(label) for label in recorded if label not in {used.label for used in methods}]
    return [_row(used, entries[used.label], recorded[used.label]) for used in (*methods, *unknown)]


def _row(used: Used, entries: Sequence[Mapping[str, Any]], records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    gears = [gear["gear"] for row in entries for gear in row["gears"]]
    traffic = traffic_of(records, [gear["gear"] for row in entries[:1] for gear in row["gears"]])
    if traffic is not None:
        gears += [row["gear"] for row in traffic["gears"]] + [row["text"] for row in traffic["outside"]]
    return {
        "method": records[0]["method"] if records else shown(used.method),
        "label": used.label,
        **used.to_plain(),
        "last_use": round(max((entry.last_use for entry in used.entries), default=0.0), 3),
        "traffic": traffic,
        "names": names_of(gears),
    }
