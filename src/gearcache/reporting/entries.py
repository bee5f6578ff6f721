"""The entries of a cache with the content of their manifests: gears, variants, and how each differs from the last."""

from __future__ import annotations

from typing import Any

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.row import EntryRow
from gearcache.cache.manifest import Manifest
from gearcache.errors import CacheError
from gearcache.readable.differences import differences
from gearcache.readable.entry import understood, variants_of
from gearcache.readable.variant import check_lines, evidence_lines, input_lines
from gearcache.reporting.safe_texts import gear_name, number, shown, whole

_LINES = 6
_VARIANTS = 16
_GEARS = 256


class EntryDetails:
    """Reads at most `most` manifests, the last used first; `faults` are those that could not be read.

    For each method it keeps the key of the previous entry, to compare the next one with it.
    """

    def __init__(self, catalog: Catalog, most: int) -> None:
        self.faults: list[str] = []
        self._catalog, self._most = catalog, most

    def plain(self, entries: list[EntryRow]) -> list[dict[str, Any]]:
        """Return the entries as JSON data, in their order."""
        manifests = {entry.identity: self._read(entry) for entry in entries[: self._most]}
        older: dict[tuple[str, str], tuple[EntryRow, Manifest]] = {}
        differs: dict[Any, dict[str, Any] | None] = {}
        for entry in sorted(entries[: self._most], key=lambda each: each.created):
            manifest = manifests[entry.identity]
            if manifest is not None:
                previous = older.get((entry.label, entry.ranks))
                differs[entry.identity] = _difference(manifest, *previous) if previous else None
                older[entry.label, entry.ranks] = entry, manifest
        return [
            {**self._row(entry), **self._details(manifests.get(entry.identity)), "differs": differs.get(entry.identity)}
            for entry in entries
        ]

    def _read(self, entry: EntryRow) -> Manifest | None:
        try:
            return self._catalog.read(entry)
        except CacheError as error:  # removed or damaged in the meantime
            self.faults.append(shown(str(error)))
            return None

    def _row(self, entry: EntryRow) -> dict[str, Any]:
        return {
            "method": shown(entry.method),
            "label": entry.label,
            "key": entry.digest,
            "ranks": shown(entry.ranks),
            "size": entry.size,
            "created": round(entry.created, 3),
            "last_use": round(entry.last_use, 3),
            "hits": entry.hits,
            "compile_seconds": number(entry.compile_seconds),
            "torch": shown(entry.torch),
        }

    def _details(self, manifest: Manifest | None) -> dict[str, Any]:
        if manifest is not None:
            try:
                with understood(manifest):
                    variants = variants_of(manifest)
                    details = {"gears": _gears(variants, manifest), "variants": _distinctions(variants)}
                    return {"is_read": True, **details}
            except CacheError as error:
                self.faults.append(shown(str(error)))
        return {"is_read": False, "gears": [], "variants": []}


def _gears(variants: list[dict[str, Any]], manifest: Manifest) -> list[dict[str, Any]]:
    return [
        {
            "gear": gear_name(gear["text"]),
            "variant": index,
            "seconds": round(number(gear.get("seconds")), 3),
            "size": sum(whole(manifest.blobs.get(digest)) for digest in gear["blobs"].values()),
        }
        for index, variant in enumerate(variants)
        for gear in variant["gears"]
    ][:_GEARS]


def _distinctions(variants: list[dict[str, Any]]) -> list[list[str]]:
    """Return, for each variant, the lines that not all variants have: inputs and checks of a call, or else evidence."""
    shown_variants = variants[:_VARIANTS]
    distinctions: list[list[str]] = [[] for _ in shown_variants]
    # Evidence is only shown if the checks of a call are equal: it is long, and seldom the cause.
    for readers in ((input_lines, check_lines), (evidence_lines,)):
        lines = [list(dict.fromkeys(line for part in readers for line in part(each))) for each in shown_variants]
        common = set(lines[0]).intersection(*lines[1:]) if lines else set()
        distinctions = [[shown(line, 160) for line in each if line not in common][:_LINES] for each in lines]
        if any(distinctions):
            break
    return distinctions


def _difference(manifest: Manifest, previous: EntryRow, older: Manifest) -> dict[str, Any] | None:
    """Return how an entry differs from the previous entry of its method."""
    leaf = first_leaf(manifest, older)
    return {"from": shown(previous.short_name), **leaf} if leaf else None


def first_leaf(wanted: Manifest, stored: Manifest) -> dict[str, Any] | None:
    """Return the first leaf in which two keys differ, with both values, and how many more there are."""
    leaves = list(differences(wanted.components, stored.components))
    if not leaves:
        return None
    fact, ours, theirs = leaves[0]
    return {"fact": shown(fact), "this": shown(ours, 120), "other": shown(theirs, 120), "more": len(leaves) - 1}
