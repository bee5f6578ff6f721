"""The index: a short record of each entry, kept by diskcache, so that a list need not read every manifest.

It is derived from the manifests and may be lost at any time. Commands open it, and a publish that finds the cache over
a limit; no lookup or load does.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import diskcache
from msgspec import msgpack

from gearcache.cache.admin.row import EntryRow, Identity
from gearcache.cache.files.trust import check_folders, open_regular, open_trusted
from gearcache.cache.layout import Layout
from gearcache.cache.locks.lock import unlock
from gearcache.errors import CacheError

_SHARD = 2
_SUM_SIZE = 32
_FILES = ("cache.db", "cache.db-wal", "cache.db-shm")


class RowDisk(diskcache.Disk):  # type: ignore[misc]
    """Stores texts as keys and bytes as values in the database, and refuses everything that diskcache would
    unpickle.
    """

    def put(self, key: Any) -> tuple[Any, bool]:
        """Only `str`."""
        if type(key) is not str:
            raise TypeError(f"a key of the index is a text, got `{type(key).__qualname__}`")
        return key, True

    def get(self, key: Any, raw: bool) -> Any:
        """Only what `put` wrote."""
        if not raw or type(key) is not str:
            raise ValueError("the index holds a key that is not ours")
        return key

    def store(self, value: Any, read: bool, key: Any = None) -> tuple[int, int, None, Any]:
        """Only `bytes`."""
        if type(value) is not bytes or read:
            raise TypeError(f"a value of the index is bytes, got `{type(value).__qualname__}`")
        return 0, diskcache.core.MODE_RAW, None, sqlite3.Binary(value)

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> bytes:
        """Only what `store` wrote."""
        if mode != diskcache.core.MODE_RAW or filename is not None or type(value) is not bytes:
            raise ValueError("the index holds a value that is not ours")
        return value


class Index:
    """Entries in shards by the first digits of the key digest: one read gives hundreds of them.

    All entries are read at once; raises for a damaged index.
    """

    def __init__(self, cache: diskcache.Cache) -> None:
        self._cache = cache
        self.entries = [entry for shard in list(cache) for entry in self._read(shard)]

    def save(self, entries: Iterable[EntryRow], changed: Iterable[Identity]) -> None:
        """Write the shards of the identities in `changed`, given all entries; never raises."""
        # A full disk, another program's lock, any error: the next command saves the index.
        with suppress(Exception):
            shards: dict[str, list[Any]] = {shard: [] for shard in map(shard_of, changed)}
            for entry in entries if shards else ():
                if (shard_entries := shards.get(entry.digest[:_SHARD])) is not None:
                    shard_entries.append(entry)
            for shard, shard_entries in shards.items():
                body = msgpack.encode(shard_entries)
                if shard_entries:
                    self._cache.set(shard, sha256(body).digest() + body)
                else:
                    self._cache.delete(shard)

    def _read(self, shard: str) -> list[EntryRow]:
        data = self._cache.get(shard, default=b"")
        digest, body = data[:_SUM_SIZE], data[_SUM_SIZE:]
        if sha256(body).digest() != digest:
            raise ValueError(f"the shard {shard} of the index is damaged")
        return msgpack.decode(body, type=list[EntryRow])


def shard_of(identity: Identity) -> str:
    """The shard of an entry."""
    return identity[1][:_SHARD]


@contextmanager
def open_index(layout: Layout) -> Iterator[Index | None]:
    """Open the index for one process at a time; None where another process has it, or it cannot be used.

    A damaged index is deleted and made anew. Never raises for a fault of the index, and never waits.
    """
    lock = _lock(layout)
    if lock is None:
        yield None
        return
    try:
        cache_and_index = _open(layout.index_folder)
        if cache_and_index is None:
            yield None
            return
        cache, index = cache_and_index
        try:
            yield index
        finally:
            cache.close()
    finally:
        unlock(lock)
        os.close(lock)


def _lock(layout: Layout) -> int | None:
    folder = layout.index_folder
    try:
        check_folders(layout.root, folder)
        if not layout.entries_folder.is_dir():
            return None  # no cache, or a folder of that name that is not ours
        folder.mkdir(mode=0o700, exist_ok=True)
        lock = open_regular(folder / "lock", os.O_RDWR | os.O_CREAT)
    except (OSError, CacheError):
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _open(folder: Path) -> tuple[diskcache.Cache, Index] | None:
    for attempt in ("present", "anew"):
        if attempt == "anew":
            for name in _FILES:
                with suppress(OSError):
                    (folder / name).unlink()
        try:
            if _is_locked(folder / _FILES[0]):
                return None
            # No limits of its own: with the defaults, diskcache may evict values at any write.
            cache = diskcache.Cache(str(folder), disk=RowDisk, eviction_policy="none", cull_limit=0, timeout=1)
            try:
                return cache, Index(cache)
            except BaseException:
                cache.close()
                raise
        except Exception:  # any damage: made anew
            continue
    return None


def _is_locked(path: Path) -> bool:
    """Return whether another program holds the database lock, on which diskcache would wait a minute.

    Creates the database with mode 0600.
    """
    os.close(open_regular(path, os.O_RDWR | os.O_CREAT))
    with open_trusted(path):
        pass
    connection = sqlite3.connect(path, timeout=0)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.rollback()
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            return True
        raise
    finally:
        connection.close()
    return False
