"""One row of the index: an entry, and the state of its files that it was read from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from gearcache.cache.entry import Entry, entry_of
from gearcache.cache.layout import USE_NAME
from gearcache.cache.manifest import Manifest

FileState: TypeAlias = "tuple[int, int, int]"
"""Inode, time in ns, size; zeros for an absent file."""

Identity: TypeAlias = "tuple[str, str, str]"
"""Label, key digest and rank scope of an entry."""

_ABSENT: FileState = (0, 0, 0)


class Row(NamedTuple):
    """An entry with the state of its manifest and of its use file."""

    entry: Entry
    manifest: FileState
    use: FileState

    def to_plain(self) -> tuple[Any, ...]:
        """What msgpack stores."""
        return tuple(self.entry), self.manifest, self.use

    @staticmethod
    def from_plain(plain: Any) -> Row:
        """Inverse of `to_plain`; `TypeError` or `ValueError` for anything else."""
        entry, manifest, use = plain
        return Row(Entry._make(entry), manifest, use)

    def with_use(self, use: FileState) -> Row:
        """The row after the entry was used."""
        return Row(used(self.entry, use), self.manifest, use)


def used(entry: Entry, use: FileState) -> Entry:
    """The entry with its last use and its loads, as its use file tells."""
    _, time_ns, size = use
    return entry._replace(last_use=max(entry.created, time_ns / 1e9), hits=size)


def row_of(manifest: Manifest, identity: tuple[str, str, str], path: Path) -> Row:
    """The row of a manifest that was just read or written; `OSError` when it is gone."""
    state = manifest_state(path)
    if state == _ABSENT:
        raise FileNotFoundError(2, os.strerror(2), str(path))
    use = use_state(path.with_name(USE_NAME))
    return Row(used(entry_of(manifest, identity, state[2]), use), state, use)


def manifest_state(path: str | Path) -> FileState:
    """Of a manifest, with the time of its last change of any kind; `OSError` other than for an absent one."""
    found = _lstat(path)
    return (found.st_ino, found.st_ctime_ns, found.st_size) if found is not None else _ABSENT


def use_state(path: str | Path) -> FileState:
    """Of a use file, with the time of the last load; `OSError` other than for an absent one."""
    found = _lstat(path)
    return (found.st_ino, found.st_mtime_ns, found.st_size) if found is not None else _ABSENT


def _lstat(path: str | Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
