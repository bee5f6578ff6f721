"""Write a cache for a container image, as a folder: any user of a container may read it, only its owner may write."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from gearcache.cache.admin.packed.packing import Packed, Sign, as_it_is, packing
from gearcache.cache.admin.row import EntryRow
from gearcache.cache.files.atomic import make_folder, open_atomic
from gearcache.cache.layout import Layout
from gearcache.errors import CacheError

_FOLDER, _FILE = 0o755, 0o644


def write_folder(layout: Layout, entries: Iterable[EntryRow], folder: Path, sign: Sign = as_it_is) -> Packed:
    """Write a cache of entries, which stay in use meanwhile, into a new or empty folder; every byte is verified.

    A cache is made for one user, with modes 0700 and 0600, and a copy into an image keeps these modes. The modes of a
    baked folder follow neither those nor the umask. `sign` may sign manifests; its errors are passed on. Raises
    `CacheError` when an entry or a blob is missing, damaged or untrusted, or when the folder is not empty or cannot be
    written; it is empty then, so that the command can be repeated.
    """
    try:
        if folder.exists() and any(folder.iterdir()):
            raise CacheError(f"`{folder}` is not empty; name a new folder")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with packing(layout, entries, sign) as packed, ExitStack() as undo:
            undo.callback(_empty, folder)
            for member in packed.members():
                path = folder / member.name
                for parent in reversed(path.relative_to(folder).parents):
                    _make_readable(folder / parent)
                with member.open() as source, open_atomic(path) as target:
                    shutil.copyfileobj(source, target)
                path.chmod(_FILE)
            undo.pop_all()
            return packed.summary()
    except OSError as error:
        raise CacheError(f"`{folder}` cannot be written: {error.strerror or error}") from error


def _empty(folder: Path) -> None:
    for path in folder.iterdir() if folder.is_dir() else ():
        shutil.rmtree(path, ignore_errors=True)


def _make_readable(folder: Path) -> None:
    make_folder(folder)
    folder.chmod(_FOLDER)
