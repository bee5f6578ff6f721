"""Counts of what the tiers did for a host, summed over its processes since the cache was made."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct, msgpack
from msgspec.structs import asdict

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
class _Counts(Struct):
    label: str
    hits: float = 0
    misses: float = 0
    faults: float = 0
    uploads: float = 0
    bytes_fetched: float = 0
    bytes_uploaded: float = 0
    seconds_saved: float = 0


class TierCounts:
    """The counts of one tier. A cache that cannot be written, or is busy, loses some."""

    def __init__(self, layout: Layout, label: str) -> None:
        self._layout = layout
        self._label = label

    def add(self, **amounts: float) -> None:
        """Add to some of the counts."""
        folder = self._layout.bucket / _FOLDER
        path = folder / sha256(self._label.encode()).hexdigest()[:16]
        with suppress(OSError, CacheError):
            folder.mkdir(mode=0o700, exist_ok=True)
            with store_lock(self._layout.locks_folder / _LOCK, _LOCK_SECONDS, alone=True):
                counts = _read(path) or _Counts(self._label)
                for name, amount in amounts.items():
                    setattr(counts, name, getattr(counts, name) + amount)
                write_atomic(path, msgpack.encode(counts))


def tier_counts(layout: Layout) -> list[dict[str, Any]]:
    """Return the counts of all tiers that this cache was ever used with, as JSON data."""
    rows = []
    with suppress(OSError):
        for path in sorted((layout.bucket / _FOLDER).iterdir()):
            if (counts := _read(path)) is not None:
                numbers = asdict(counts)
                plain = {"tier": numbers.pop("label"), "compile_seconds_saved": round(numbers.pop("seconds_saved"), 3)}
                rows.append({**plain, **{name: int(number) for name, number in numbers.items()}})
    return rows


def _read(path: Path) -> _Counts | None:
    try:
        return msgpack.decode(read_trusted(path, _LARGEST), type=_Counts)
    except (OSError, CacheError, ValueError):
        return None
