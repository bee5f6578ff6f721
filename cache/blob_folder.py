"""Blobs in the folder of a cache: bytes under their sha256, verified whenever they are read.

What only a writer needs is imported where it writes: a relaunch reads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path

from gearcache.cache.files.trust import (
    check_descriptor,
    check_digest,
    check_folders,
    open_trusted,
    opened_name,
    read_verified,
)
from gearcache.cache.layout import Layout
from gearcache.errors import CacheError, CorruptEntry, PublishError, UnsafePath

MAX_STORE_LOCK_SECONDS = 60.0
"""Writers and deleters hold the lock of the store for moments; a longer wait means that one of them hangs."""


class BlobFolder:
    """The blobs of a cache. Only corrupt blobs move to the quarantine."""

    def __init__(self, layout: Layout, lock_timeout: float) -> None:
        self.layout = layout
        self.lock_timeout = lock_timeout
        self._trusted: set[Path] = set()

    def has_blob(self, digest: str) -> bool:
        """Whether a blob is present, unverified."""
        return present_size(self.layout.blob(digest)) is not None

    def blob_size(self, digest: str) -> int:
        """The size of a blob in bytes, unverified; `CorruptEntry` when it is missing."""
        path = self.layout.blob(digest)
        size = present_size(path)
        if size is None:
            raise CorruptEntry(path, "the blob is missing")
        return size

    def read_blob(self, digest: str) -> bytes:
        """Return the bytes of a blob; `CorruptEntry` if damaged or gone, `UnsafePath`, or a plain `CacheError`."""
        with self._verifying(digest) as path:
            return read_verified(path, digest)

    @contextmanager
    def blob_file(self, digest: str) -> Iterator[str]:
        """Yield a name that opens exactly the file that was verified, inside the `with`; errors as for `read_blob`.

        A file that replaces it meanwhile does not matter: the verified bytes are read.
        """
        with ExitStack() as stack:
            with self._verifying(digest) as path:
                descriptor = stack.enter_context(open_trusted(path))
                check_descriptor(descriptor, path, digest)
            yield opened_name(descriptor, path)

    def put_blob(self, data: bytes) -> str:
        """Store bytes under their sha256; a sound blob is not written again, a damaged one is replaced."""
        from gearcache.cache.files.atomic import write_atomic

        digest = sha256(data).hexdigest()
        path = self.layout.blob(digest)
        with self.writing():
            if not _is_sound(path, digest, len(data)):
                prepare_folder(self.layout, path.parent)
                write_atomic(path, data)
        return digest

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep blobs that no entry names yet from being collected; `PublishError` where nothing can be written.

        May be nested. Writers do not wait for each other, only for a process that deletes.
        """
        from gearcache.cache.locks.lock import store_lock

        path = self.layout.store_lock
        prepare_folder(self.layout, path.parent)
        with store_lock(path, min(self.lock_timeout, MAX_STORE_LOCK_SECONDS), alone=False):
            yield

    @contextmanager
    def _verifying(self, digest: str) -> Iterator[Path]:
        path = self.layout.blob(digest)
        try:
            self._check_folder(path.parent)
            yield path
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CorruptEntry(path, "the blob is missing") from error
        except OSError as error:
            raise CacheError(f"`{path}` cannot be read: {error.strerror}") from error
        except CorruptEntry as error:
            from gearcache.cache.quarantine import quarantine

            quarantine(self.layout, error, f"{digest}.blob", lambda: check_digest(path, digest))
            raise

    def _check_folder(self, folder: Path) -> None:
        # Once for each folder: files read from it are checked one by one anyway.
        root = self.layout.root
        if folder not in self._trusted and check_folders(root, folder, above=root not in self._trusted):
            self._trusted |= {root, folder}


def prepare_folder(layout: Layout, folder: Path) -> None:
    """Make a folder of the bucket, and what it needs, ready to be written; `PublishError` or `UnsafePath`."""
    try:
        check_folders(layout.root, folder)
        layout.prepare(folder)
    except OSError as error:
        raise PublishError(folder, error.strerror or type(error).__name__) from error


def prepare_entry(layout: Layout, folder: Path, blobs: Iterable[str]) -> None:
    """Make the folder of an entry ready for its manifest, once its blobs exist; errors as for `prepare_folder`.

    After a power cut the manifest must not exist without its blobs, nor be lost with a parent folder. Another process
    may have made these a moment ago, and the blobs too, so they are synced in any case.
    """
    from gearcache.cache.files.atomic import sync_folder

    prepare_folder(layout, folder)
    parents = {parent for path in (folder, *map(layout.blob, blobs)) for parent in path.parents}
    try:
        for parent in sorted(parents - set(layout.root.parent.parents), reverse=True):
            sync_folder(parent)
    except OSError as error:
        raise PublishError(folder, error.strerror or type(error).__name__) from error


def _is_sound(path: Path, digest: str, size: int) -> bool:
    if present_size(path) != size:
        return False
    try:
        check_digest(path, digest)
    except (OSError, CorruptEntry, UnsafePath):
        return False
    return True


def present_size(path: Path) -> int | None:
    """Return the size of a regular file in bytes, or None where it is missing; `OSError` if that is not known."""
    try:
        state = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return state.st_size if stat.S_ISREG(state.st_mode) else None
