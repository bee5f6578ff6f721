"""Folders of other versions of gearcache below the same root: they can be counted and deleted, not read."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path

from msgspec import Struct

from gearcache.cache.admin.folder_marks import is_bucket, version_of
from gearcache.cache.files.trust import check_folders
from gearcache.cache.keys.key import FORMAT_VERSION
from gearcache.cache.layout import MANIFEST_NAME, USE_NAME, Layout
from gearcache.cache.locks.lock import store_lock
from gearcache.cache.locks.use import exclusive_use
from gearcache.cache.remove import PATIENCE_SECONDS
from gearcache.errors import CacheError


class OtherFormatFolder(Struct, frozen=True):
    """The folder of another format version, older or newer; `size` is in bytes."""

    path: Path
    version: int
    entries: int
    size: int


def other_formats(layout: Layout) -> list[OtherFormatFolder]:
    """Return the folders of other format versions, the oldest first, without a user's own `v1`. Never raises."""
    folders = []
    with suppress(OSError):
        for path in layout.root.iterdir():
            version = version_of(path.name)
            with suppress(OSError):
                if version is not None and version != FORMAT_VERSION and is_bucket(path):
                    folders.append(_measure(path, version))
    return sorted(folders, key=lambda folder: folder.version)


def remove_format(layout: Layout, folder: OtherFormatFolder) -> int:
    """Delete the folder of another version and return its size; `CacheError` when it is in use or cannot be deleted.

    Users are detected only where that version marks them as this one does: version 1 did not.
    """
    if folder.path.parent != layout.root or version_of(folder.path.name) is None:
        raise ValueError(f"`{folder.path}` is not the folder of a format version below `{layout.root}`")
    try:
        check_folders(layout.root, folder.path)
        if not is_bucket(folder.path):
            raise CacheError(f"`{folder.path}` holds what no cache does; delete it by hand if it is to go")
        with ExitStack() as stack:
            lock = folder.path / "locks" / "store.lock"
            if lock.parent.is_dir():
                stack.enter_context(store_lock(lock, PATIENCE_SECONDS, alone=True))
            for inner, _, names in os.walk(folder.path):
                for name in names:
                    if name == USE_NAME and not stack.enter_context(exclusive_use(Path(inner, name))):
                        raise CacheError(f"`{Path(inner)}` is in use by another version of gearcache")
            shutil.rmtree(folder.path)
    except OSError as error:
        raise CacheError(f"`{error.filename}` cannot be removed: {error.strerror}") from error
    return folder.size


def _measure(path: Path, version: int) -> OtherFormatFolder:
    entries = size = 0
    for inner, _, names in os.walk(path):
        for name in names:
            entries += name == MANIFEST_NAME
            try:
                size += os.lstat(os.path.join(inner, name)).st_size  # noqa: PTH118 - there may be very many
            except OSError:
                continue
    return OtherFormatFolder(path, version, entries, size)
