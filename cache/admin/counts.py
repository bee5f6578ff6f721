"""Count hits and misses since the cache was made, or since the last reset.

Counting processes only append bytes. A reset records how many there were, and that number is subtracted from then on.
No count beside a reset is lost, whether it falls before or after it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgpack
from msgspec import Struct, field

from gearcache.cache.admin.row import EntryRow, Identity
from gearcache.cache.admin.tally import misses
from gearcache.cache.blob_folder import prepare_folder
from gearcache.cache.files.atomic import write_atomic
from gearcache.cache.files.trust import check_folders, read_trusted
from gearcache.cache.layout import Layout
from gearcache.errors import CacheError, CorruptEntry, PublishError

BASELINE_NAME = "counted_from"
_LARGEST = 256 << 20
_MARK = "CACHEDIR.TAG"


class _Baseline(Struct):
    """The counts before the reset; a number of hits applies to the use file of that inode."""

    since: float | None = None
    hits: dict[Identity, tuple[int, int]] = field(default_factory=dict)
    misses: dict[tuple[str, str], int] = field(default_factory=dict)


class Counts:
    """Hits of entries and misses of methods.

    `since` is in seconds since 1970, 0 where unknown; `was_reset` shows whether it is the time of a reset. `fault` says
    why an existing reset cannot be read.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.fault: CacheError | None = None
        self._baseline = self._read()
        self.was_reset = self._baseline.since is not None
        self.since = self._baseline.since if self._baseline.since is not None else _creation_time(layout)

    def hits(self, entry: EntryRow) -> int:
        """The loads of an entry."""
        inode, before = self._baseline.hits.get(entry.identity, (0, 0))
        # Another inode, or a smaller file: the entry was removed and made again.
        return entry.hits - before if inode == entry.use_inode and before <= entry.hits else entry.hits

    def misses(self) -> dict[str, dict[str, int]]:
        """Return label of the method -> reason -> misses, without zeros."""
        misses_by_label: dict[str, dict[str, int]] = {}
        for label, reasons in misses(self._layout).items():
            for reason, number in reasons.items():
                count = number - self._baseline.misses.get((label, reason), 0)
                if count > 0:
                    misses_by_label.setdefault(label, {})[reason] = count
        return misses_by_label

    def _read(self) -> _Baseline:
        path = self._layout.bucket / BASELINE_NAME
        try:
            check_folders(self._layout.root, path.parent)
            return _unpack(read_trusted(path, _LARGEST))
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            self.fault = CacheError(f"`{path}` cannot be read: {error.strerror}")
        except CacheError as error:
            self.fault = error
        except (ValueError, TypeError, KeyError):
            self.fault = CorruptEntry(path, "it is not what a reset writes")
        return _Baseline()


def reset_counts(layout: Layout, entries: Iterable[EntryRow], now: float) -> None:
    """Count from now on; `CacheError` where that cannot be written. Of two concurrent resets the later one wins."""
    prepare_folder(layout, layout.bucket)
    data: bytes = msgpack.packb(
        {
            "since": now,
            "hits": [[*entry.identity, entry.use_inode, entry.hits] for entry in entries if entry.hits],
            "misses": [
                [label, reason, n] for label, reasons in misses(layout).items() for reason, n in reasons.items()
            ],
        }
    )
    path = layout.bucket / BASELINE_NAME
    try:
        write_atomic(path, data)
    except OSError as error:
        raise PublishError(path, error.strerror or type(error).__name__) from error


def _unpack(data: bytes) -> _Baseline:
    fields: Any = msgpack.unpackb(data, strict_map_key=True)
    since = float(fields["since"])
    if not 0 <= since < 1e11:
        raise ValueError("no time")
    return _Baseline(
        since,
        {(str(label), str(key), str(ranks)): (int(inode), int(n)) for label, key, ranks, inode, n in fields["hits"]},
        {(str(label), str(reason)): int(n) for label, reason, n in fields["misses"]},
    )


def _creation_time(layout: Layout) -> float:
    """Return when the cache was made: its mark is written then, and never again."""
    for folder in (layout.root, layout.bucket):
        with suppress(OSError):
            return os.lstat(folder / _MARK).st_mtime
    return 0.0
