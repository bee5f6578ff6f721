"""Taking corrupt files out of the way, without losing them."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gearcache.cache.atomic import move_aside, write_atomic
from gearcache.cache.layout import Layout
from gearcache.cache.trust import read_trusted
from gearcache.errors import CacheError, CorruptEntry

REASON_SUFFIX = ".reason"
_MAX_REASON_SIZE = 1 << 16


def quarantine(layout: Layout, fault: CorruptEntry, name: str, check: Callable[[], object]) -> None:
    """Move the file of a fault, and nothing else, to the quarantine, beside a `.reason` text.

    `check` finds the fault again: another process may have put a sound file there meanwhile, which stays.
    Never raises for the disk: in a cache that cannot be written the corrupt file stays, and fails again.
    """
    target = layout.quarantine(f"{name}-{os.urandom(4).hex()}")
    with suppress(OSError, CacheError):
        layout.prepare()
        try:
            check()
        except CorruptEntry:
            move_aside(fault.path, target)
            write_atomic(target.with_name(target.name + REASON_SUFFIX), f"{fault}\n".encode())


@dataclass(frozen=True)
class Quarantined:
    """A file in the quarantine; the reason is empty when a process was killed before it wrote it."""

    path: Path
    reason: str
    size: int


def quarantined(layout: Layout) -> list[Quarantined]:
    """What lies in the quarantine, by name. Never raises."""
    found = []
    for path in sorted(_files(layout)):
        if path.suffix != REASON_SUFFIX:
            reason, size = "", 0
            with suppress(OSError, CacheError):
                size = path.lstat().st_size
                reason = read_trusted(path.with_name(path.name + REASON_SUFFIX), _MAX_REASON_SIZE).decode().strip()
            found.append(Quarantined(path, reason, size))
    return found


def drop_quarantine(layout: Layout) -> int:
    """Delete what lies in the quarantine, and return the bytes freed. `OSError` or `UnsafePath`."""
    # Imported here: a relaunch deletes nothing.
    from gearcache.cache.remove import unlink_all

    freed = 0

    def count(path: Path, size: int) -> None:
        nonlocal freed
        freed += size

    unlink_all(layout, _files(layout), count)
    return freed


def _files(layout: Layout) -> list[Path]:
    try:
        return list(layout.quarantine_folder.iterdir())
    except OSError:
        return []
