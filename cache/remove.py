"""Delete entries, blobs and leftovers. Callers hold the store lock exclusively."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gearcache.cache.admin.row import Identity
from gearcache.cache.files.trust import check_folders
from gearcache.cache.layout import BACKEND_FOLDERS, MANIFEST_NAME, USE_NAME, Layout
from gearcache.cache.locks.lock import store_lock
from gearcache.cache.locks.use import exclusive_use
from gearcache.errors import CacheError

PATIENCE_SECONDS = 10.0
"""Writers hold the lock of the store for moments; who waits longer for them says so and gives up."""


@contextmanager
def deleting(layout: Layout, patience: float) -> Iterator[None]:
    """Hold the store lock exclusively; `CacheError` if it is not free in `patience` seconds, or not writable."""
    try:
        check_folders(layout.root, layout.locks_folder)
        layout.prepare()
    except OSError as error:
        raise CacheError(f"`{layout.root}` cannot be changed: {error.strerror}") from error
    with store_lock(layout.store_lock, patience, alone=True):
        yield


def remove_entry(layout: Layout, identity: Identity, *, last_use: int | None = None, dry_run: bool = False) -> bool:
    """Remove an entry that no process uses, its manifest first; False when it is in use. Its blobs stay.

    With `last_use`, the time of its use file in ns, an entry that was used after it counts as in use. An entry that is
    found in use is marked as used now: its process may be killed before it can do so.

    Raises `OSError` or `UnsafePath` when that fails; an absent entry counts as removed.
    """
    folder = layout.entry(*identity)
    check_folders(layout.root, folder)
    use = folder / USE_NAME
    with exclusive_use(use, create=not dry_run) as alone:
        if not alone:
            if not dry_run:
                with suppress(OSError):
                    os.utime(use, follow_symlinks=False)
            return False
        if last_use is not None and _time_of(use) > last_use:
            return False
        if not dry_run:
            # From here on the entry does not exist; if the process is killed here, the rest is a leftover.
            (folder / MANIFEST_NAME).unlink(missing_ok=True)
            # Under its lock: a process that opened it meanwhile sees that it has no name.
            use.unlink(missing_ok=True)
            for name in BACKEND_FOLDERS:
                shutil.rmtree(folder / name, ignore_errors=True)
            remove_empty(folder, layout.entries_folder)
        return True


def _time_of(use: Path) -> int:
    try:
        return os.lstat(use).st_mtime_ns
    except FileNotFoundError:
        return 0


def remove_empty(folder: Path, top: Path) -> None:
    """Remove a folder and those above it, below `top`, while they are empty."""
    while folder != top:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def unlink_all(layout: Layout, paths: Iterable[Path], removed: Callable[[Path, int], None]) -> None:
    """Unlink files of the cache and report each with its size; absent ones are skipped. Raises as `remove_entry`."""
    checked_folders: set[Path] = set()
    for path in paths:
        if path.parent not in checked_folders:
            check_folders(layout.root, path.parent)
            checked_folders.add(path.parent)
        with suppress(FileNotFoundError):
            size = os.lstat(path).st_size
            path.unlink()
            removed(path, size)
