"""Collect what no entry needs: blobs without an entry, unfinished files, folders of removed entries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

from gearcache.cache.admin.row import Identity
from gearcache.cache.admin.scan import MisplacedEntry, Scan, scan
from gearcache.cache.files.atomic import TEMPORARY_PREFIX, is_unfinished
from gearcache.cache.layout import BACKEND_FOLDERS, USE_NAME, Layout, is_digest, is_ranks_folder
from gearcache.cache.quarantine import MAX_KEPT_SECONDS, drop, excess, quarantined
from gearcache.cache.remove import deleting, remove_entry, unlink_all
from gearcache.errors import CacheError, CorruptEntry

LEFTOVER_SECONDS = 3600.0
"""Outside the folders that the lock of the store guards, an unfinished file this old has no writer any more."""


class Collected(Struct):
    """What was removed, or would be; `fault` says why some of it was not."""

    blobs: list[Path] = field(default_factory=list)
    leftovers: list[Path] = field(default_factory=list)
    quarantined: int = 0
    freed: int = 0
    fault: CacheError | None = None

    def _add_blob(self, path: Path, size: int) -> None:
        self.blobs.append(path)
        self.freed += size

    def _add_leftover(self, path: Path, size: int) -> None:
        self.leftovers.append(path)
        self.freed += size


def collect(layout: Layout, now: float, patience: float, *, dry_run: bool = False) -> Collected:
    """Remove what no entry needs, or with `dry_run` only name it. Never raises for a fault of the cache.

    Files over the limit of the quarantine, or older than `MAX_KEPT_SECONDS`, are removed as well. Blobs stay while a
    manifest cannot be read: it may name them.
    """
    collected = Collected()
    try:
        if not layout.bucket.is_dir():
            return collected
        if dry_run:
            _collect(layout, now, collected, dry_run=True)
        else:
            excess_files = excess(quarantined(layout), before=now - MAX_KEPT_SECONDS)
            collected.quarantined = len(excess_files)
            collected.freed += drop(layout, excess_files)
            with deleting(layout, patience):
                _collect(layout, now, collected, dry_run=False)
    except CacheError as error:
        collected.fault = error
    except OSError as error:
        collected.fault = CacheError(f"`{error.filename}` cannot be removed: {error.strerror}")
    return collected


def needed_blobs(scan_result: Scan) -> set[str]:
    """Return the digests that entries name; `CacheError` when an entry is unreadable: its blobs are then unknown."""
    misplaced: set[str] = set()
    for fault in scan_result.faults:
        if isinstance(fault, MisplacedEntry):
            misplaced.update(fault.blobs)  # the manifest is sound, only misplaced: an entry may need its blobs
        # Damaged for good: a miss for every process, moved to the quarantine at its next lookup.
        elif type(fault) is not CorruptEntry:
            raise fault
    packed = {entry.blobs for entry in scan_result.entries}
    return misplaced | {blobs[at : at + 32].hex() for blobs in packed for at in range(0, len(blobs), 40)}


def _collect(layout: Layout, now: float, collected: Collected, *, dry_run: bool) -> None:
    def remove(paths: list[Path], note: Callable[[Path, int], None]) -> None:
        if not dry_run:
            unlink_all(layout, paths, note)
            return
        for path in paths:
            note(path, _size(path))

    remove(list(_unfinished(layout, now)), collected._add_leftover)
    for identity in list(_abandoned(layout)):
        if dry_run or remove_entry(layout, identity):
            collected._add_leftover(layout.entry(*identity), 0)
    needed_digests = needed_blobs(scan(layout, exact=True))
    unneeded_paths = [path for path in layout.blobs() if is_digest(path.name) and path.name not in needed_digests]
    remove(unneeded_paths, collected._add_blob)


def _unfinished(layout: Layout, now: float) -> Iterator[Path]:
    """Yield files of dead writers: here writers hold the lock of the store, elsewhere age decides."""
    guarded_folders = (layout.entries_folder, layout.blobs_folder)
    for folder in guarded_folders:
        for inner, _, names in os.walk(folder):
            yield from (Path(inner, name) for name in names if name.startswith(TEMPORARY_PREFIX))
    others = [path for path in _inside(layout.bucket) if path.is_dir() and path not in guarded_folders]
    for folder in (layout.root, layout.bucket, *others):
        for path in _inside(folder):
            # The root may hold files of a user: there the whole name must be one of ours.
            if is_unfinished(path) if folder == layout.root else path.name.startswith(TEMPORARY_PREFIX):
                with suppress(OSError):
                    if now - os.lstat(path).st_mtime > LEFTOVER_SECONDS:
                        yield path


def _abandoned(layout: Layout) -> Iterator[Identity]:
    """Yield folders without a manifest, inner folders first."""
    for label, digest in layout.names():
        folder = layout.entry(label, digest, "")
        names = {path.name for path in _inside(folder)} - {USE_NAME}
        rank_folders = {ranks for ranks in names if is_ranks_folder(ranks)}
        for ranks in rank_folders:
            if not _holds_entry({path.name for path in _inside(folder / ranks)}):
                yield label, digest, ranks
        if not _holds_entry(names):
            yield label, digest, ""


def _holds_entry(names: set[str]) -> bool:
    """Return whether a folder holds more than the remains of an entry; files of others could not be removed."""
    remains = {USE_NAME, *BACKEND_FOLDERS}
    return any(name not in remains and not name.startswith(TEMPORARY_PREFIX) for name in names)


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
