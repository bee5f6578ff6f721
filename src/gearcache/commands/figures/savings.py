"""Computes what a cache saved: hits, misses by reason, seconds of compiling; in total and by method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct, field

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.folder_marks import LAST_MARK
from gearcache.cache.admin.row import EntryRow, total_size
from gearcache.cache.admin.tally import misses
from gearcache.cache.layout import Layout
from gearcache.cache.quarantine import quarantined
from gearcache.options import resolve_settings


class Used(Struct):
    """What the cache saved, for one method or for all. `compiled` and `saved` are seconds; `saved` is an estimate:
    hits, times the average compile time of a variant.
    """

    label: str = ""
    entries: list[EntryRow] = field(default_factory=list)
    hits: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    compiled: float = 0.0
    saved: float = 0.0

    @property
    def method(self) -> str:
        """The name of the method, if it is known, else its label."""
        return self.entries[0].method if self.entries else self.label

    @property
    def misses(self) -> int:
        """Lookups that found no usable variant."""
        return sum(self.missed.values())

    @property
    def rate(self) -> float | None:
        """The share of hits in all lookups, between 0 and 1; None without lookups."""
        lookups = self.hits + self.misses
        return round(self.hits / lookups, 4) if lookups else None

    @property
    def gears(self) -> int:
        """Compiled gears."""
        return sum(len(entry.gears) for entry in self.entries)

    def add(self, entry: EntryRow) -> None:
        """Add an entry."""
        self.entries.append(entry)
        self.hits += entry.hits
        self.compiled += entry.compile_seconds
        # A hit loads one trace, and which one is not counted; entries also keep traces of code that no longer exists.
        self.saved += entry.hits * entry.compile_seconds / max(1, entry.variants)

    def to_plain(self) -> dict[str, Any]:
        """Return everything as JSON data."""
        return {
            "entries": len(self.entries),
            "gears": self.gears,
            "size": total_size(self.entries),
            "hits": self.hits,
            "misses": self.misses,
            "hit_rate": self.rate,
            "misses_by_reason": dict(sorted(self.missed.items())),
            "compile_seconds": round(self.compiled, 3),
            "compile_seconds_saved": round(self.saved, 3),
        }


def used_by_methods(entries: Iterable[EntryRow], layout: Layout) -> list[Used]:
    """Return what the cache saved by method, the most seconds first."""
    used_by_label: dict[str, Used] = {}
    for entry in entries:
        used_by_label.setdefault(entry.label, Used(entry.label)).add(entry)
    for label, reasons in misses(layout).items():
        used_by_label.setdefault(label, Used(label)).missed.update(reasons)
    return sorted(used_by_label.values(), key=lambda each: (-each.saved, -each.hits, each.label))


def limits_in_force(environ: Mapping[str, str]) -> tuple[int | None, float | None]:
    """Return the limits of an environment: bytes and seconds; None for no limit."""
    settings = resolve_settings(None, has_gears=False, environ=environ)
    return settings.max_size, settings.max_age


def used_in_all(methods: Iterable[Used]) -> Used:
    """Return what the cache saved in total; `methods` are those of `used_by_methods`."""
    total = Used()
    for used in methods:
        for entry in used.entries:
            total.add(entry)
        total.missed += used.missed
    return total


def _counted_since(layout: Layout) -> float:
    """Return when the cache was made, in seconds since 1970, as its mark is written then; 0 if unknown."""
    for folder in (layout.root, layout.bucket):
        with suppress(OSError):
            return (folder / LAST_MARK).lstat().st_mtime
    return 0.0


def used_plain(catalog: Catalog, total: Used, limits: tuple[int | None, float | None]) -> dict[str, Any]:
    """Return the sums as JSON data, with the limits and the size of the quarantine."""
    aside = quarantined(catalog.layout)
    return {
        "since": _counted_since(catalog.layout),
        "limits": dict(zip(("max_size", "max_age"), limits, strict=True)),
        **total.to_plain(),
        "quarantined": len(aside),
        "quarantined_size": sum(item.size for item in aside),
    }
