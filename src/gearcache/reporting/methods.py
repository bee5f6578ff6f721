"""The methods of a report: the counts of the cache for each, and the calls in recorded processes.

The cache counts by the label of a method, which is the name of a folder: classes of the same name share it, and so do
names that differ only in letters that a folder name cannot have. Here their names in keys and traces separate them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from gearcache.cache.admin.row import EntryRow
from gearcache.cache.keys.key import CacheKey
from gearcache.commands.figures.savings import Used
from gearcache.reporting.safe_texts import names_of, shown
from gearcache.reporting.traffic import traffic_of

#: The fields of a record that are not empty for a method that was called.
_SIGNS = ("gears", "padded", "eager_reasons", "refused_errors", "shapes", "reasons")
_Record = dict[str, Any]


class _Method(Struct):
    """One method of one class: its entries as rows and as shown, and its records."""

    name: str
    owner: str
    used: Used
    shown: list[Mapping[str, Any]] = field(default_factory=list)
    records: list[_Record] = field(default_factory=list)


def method_rows(
    methods: Sequence[Used],
    entries: Sequence[EntryRow],
    rows: Sequence[Mapping[str, Any]],
    records: Sequence[Sequence[_Record]],
) -> list[dict[str, Any]]:
    """Return the methods as JSON data, in the order of `methods`; then those that the cache does not know.

    `rows` are the entries as `EntryDetails` returns them. If several methods share a label, each has a row, and one
    more row has the misses, which are counted by label only.
    """
    by_label: dict[str, list[_Method]] = {}
    for entry, row in zip(entries, rows, strict=True):
        method = _method_of(by_label, entry.label, row["method"], row["owner"])
        method.used.add(entry)
        method.shown.append(row)
    for process_records in records:
        for record in process_records:
            if any(record[sign] for sign in _SIGNS):
                label = CacheKey(record["method"], ()).safe_label
                _method_of(by_label, label, record["method"], record["owner"]).records.append(record)
    plain_rows = []
    for used in methods:
        own = by_label.pop(used.label, [])
        if len(own) == 1:
            own[0].used.missed = used.missed
        elif used.missed:
            own.append(_Method(shown(used.label), "", Used(used.label, missed=used.missed)))
        plain_rows += list(_rows(own))
    return [*plain_rows, *(row for own in by_label.values() for row in _rows(own))]


def _method_of(by_label: dict[str, list[_Method]], label: str, name: str, owner: str) -> _Method:
    """Return the method of an entry or a record; one of unknown class is assigned to the method of the same name."""
    own = by_label.setdefault(label, [])
    for method in own:
        if method.name == name and (method.owner == owner or not owner or not method.owner):
            method.owner = method.owner or owner
            return method
    own.append(_Method(name, owner, Used(label)))
    return own[-1]


def _rows(own: Sequence[_Method]) -> Iterator[dict[str, Any]]:
    names = [method.name for method in own]
    for method in own:
        gears = [gear["gear"] for row in method.shown for gear in row["gears"]]
        traffic = traffic_of(method.records, [gear["gear"] for row in method.shown[:1] for gear in row["gears"]])
        if traffic is not None:
            gears += [row["gear"] for row in traffic["gears"]] + [row["text"] for row in traffic["outside"]]
        yield {
            "method": method.name,
            # Shown only if it separates two methods, because it is as long as the name.
            "owner": method.owner if names.count(method.name) > 1 else "",
            **method.used.to_plain(),
            "last_use": round(max((entry.last_use for entry in method.used.entries), default=0.0), 3),
            "traffic": traffic,
            "names": names_of(gears),
        }
