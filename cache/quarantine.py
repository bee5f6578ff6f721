"""Move corrupt files to the quarantine, where the newest are kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from gearcache.cache.files.atomic import move_aside, write_atomic
from gearcache.cache.files.trust import read_trusted
from gearcache.cache.layout import Layout
from gearcache.errors import CacheError, CorruptEntry

REASON_SUFFIX = ".reason"
MAX_KEPT = 100
MAX_KEPT_SIZE = 256 << 20
"""Bytes in the quarantine, beside the newest file: a disk that damages what it holds must not fill up with it."""
MAX_KEPT_SECONDS = 30 * 86400.0
_MAX_REASON_SIZE = 1 << 16


def quarantine(layout: Layout, fault: CorruptEntry, name: str, check: Callable[[], object]) -> None:
    """Move the file of a fault to the quarantine, beside a `.reason` text; the oldest files there are deleted.

    `check` reproduces the fault: another process may have put a sound file there meanwhile, which stays. Never raises
    for the disk: in a cache that cannot be written the corrupt file stays, and fails again.
    """
    target = layout.quarantine(f"{name}-{os.urandom(4).hex()}")
    with suppress(OSError, CacheError):
        layout.prepare()
        damaged_identity = _identity(fault.path)
        try:
            check()
        except CorruptEntry:
            move_aside(fault.path, target)
            if _identity(target) != damaged_identity:
                _put_back(target, fault.path)  # a sound file that replaced it between the check and the move
                return
            with suppress(OSError):  # on a full disk, what is dropped counts more than the reason
                write_atomic(target.with_name(target.name + REASON_SUFFIX), f"{fault}\n".encode())
        drop(layout, excess(quarantined(layout)))


class Quarantined(Struct, frozen=True):
    """A file in the quarantine; the reason is empty when a process was killed before it wrote it.

    `size` is in bytes, with that of the reason; `since` is in seconds since 1970.
    """

    path: Path
    reason: str
    size: int
    since: float


def quarantined(layout: Layout) -> list[Quarantined]:
    """Return the content of the quarantine, the oldest first. Never raises."""
    items = []
    for name in {path.name.removesuffix(REASON_SUFFIX) for path in _files(layout)}:
        path = layout.quarantine(name)
        reason, size, since = "", 0, 0.0
        with suppress(OSError, CacheError):
            for part in _parts(path):
                with suppress(FileNotFoundError):
                    state = part.lstat()
                    # A rename changes the ctime of a file, not its mtime.
                    size, since = size + state.st_size, max(since, state.st_ctime)
            reason = read_trusted(_parts(path)[1], _MAX_REASON_SIZE).decode(errors="replace").strip()
        items.append(Quarantined(path, reason, size, since))
    return sorted(items, key=lambda item: (item.since, item.path.name))


def excess(items: list[Quarantined], *, before: float = 0.0, room: int | None = None) -> list[Quarantined]:
    """Return the oldest items to delete, until the rest is within the bounds of the quarantine.

    The rest was moved there not before `before`, and has at most `room` bytes. For the quarantine's own bounds the
    newest item stays, however large.
    """
    size = 0
    for number, item in enumerate(reversed(items)):
        size += item.size
        is_too_much = number >= MAX_KEPT or (number > 0 and size > MAX_KEPT_SIZE)
        if is_too_much or item.since < before or (room is not None and size > room):
            return items[: len(items) - number]
    return []


def drop(layout: Layout, items: Iterable[Quarantined]) -> int:
    """Delete some items, and return the bytes freed. Raises `OSError` or `UnsafePath`."""
    # Imported here: a relaunch deletes nothing.
    from gearcache.cache.remove import unlink_all

    freed = 0

    def count(path: Path, size: int) -> None:
        nonlocal freed
        freed += size

    unlink_all(layout, (part for item in items for part in _parts(item.path)), count)
    return freed


def _parts(path: Path) -> tuple[Path, Path]:
    """The file and its reason."""
    return path, path.with_name(path.name + REASON_SUFFIX)


def _identity(path: Path) -> tuple[int, int, int]:
    """Return the part of a file's state that a move within the cache does not change."""
    state = path.lstat()
    return state.st_ino, state.st_mtime_ns, state.st_size


def _put_back(moved_path: Path, path: Path) -> None:
    """Undo a move, unless a file exists there again."""
    try:
        path.hardlink_to(moved_path)
    except FileExistsError:
        moved_path.unlink()
    except OSError:  # a file system without hard links
        move_aside(moved_path, path)
    else:
        moved_path.unlink()


def _files(layout: Layout) -> list[Path]:
    try:
        return list(layout.quarantine_folder.iterdir())
    except OSError:
        return []
