"""Counts of what the tiers did for a host, summed over its processes since the cache was made."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgpack

from gearcache.cache.files.atomic import write_atomic
from gearcache.cache.files.trust import read_trusted
from gearcache.cache.layout import Layout
from gearcache.cache.locks.lock import store_lock
from gearcache.errors import CacheError

_FOLDER = "tiers"
_LOCK = "tiers.lock"
_LOCK_SECONDS = 0.2
_LARGEST = 4096
#: Lookups that brought something and that brought nothing, failed requests, stored entries; bytes in both directions;
#: seconds of compiling that were saved.
FIELDS = ("hits", "misses", "faults", "uploads", "bytes_fetched", "bytes_uploaded", "seconds_saved")


class TierCounts:
    """The counts of one tier. A cache that cannot be written, or is busy, loses some."""

    def __init__(self, layout: Layout, label: str) -> None:
        self._layout = layout
        self._label = label

    def add(self, **amounts: float) -> None:
        """Add to some of `FIELDS`."""
        folder = self._layout.bucket / _FOLDER
        path = folder / sha256(self._label.encode()).hexdigest()[:16]
        with suppress(OSError, CacheError):
            folder.mkdir(mode=0o700, exist_ok=True)
            with store_lock(self._layout.locks_folder / _LOCK, _LOCK_SECONDS, alone=True):
                counts = _read(path) or {"label": self._label, **dict.fromkeys(FIELDS, 0)}
                for name, amount in amounts.items():
                    counts[name] += amount
                write_atomic(path, msgpack.packb(counts))


def tier_counts(layout: Layout) -> list[dict[str, Any]]:
    """Return the counts of all tiers that this cache was ever used with, as JSON data."""
    rows = []
    with suppress(OSError):
        for path in sorted((layout.bucket / _FOLDER).iterdir()):
            if (counts := _read(path)) is not None:
                plain = {"tier": counts.pop("label"), "compile_seconds_saved": round(counts.pop("seconds_saved"), 3)}
                rows.append({**plain, **{name: int(number) for name, number in counts.items() if name in FIELDS}})
    return rows


def _read(path: Path) -> dict[str, Any] | None:
    try:
        counts = msgpack.unpackb(read_trusted(path, _LARGEST))
        is_sound = isinstance(counts["label"], str) and all(isinstance(counts[name], (int, float)) for name in FIELDS)
    except Exception:  # a foreign file may raise anything
        return None
    return counts if is_sound else None
