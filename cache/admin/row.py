"""The row of an entry, as lists, limits and totals need it, without its payload; and the states of its files."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from gearcache.cache.keys.key import CacheKey, short_name
from gearcache.cache.layout import BACKEND_FOLDERS, USE_NAME
from gearcache.cache.manifest import Manifest

FileState: TypeAlias = "tuple[int, int, int]"
"""Inode, time in ns, size; zeros for an absent file."""

Identity: TypeAlias = "tuple[str, str, str]"
"""Label, key digest and ranks of an entry."""

ABSENT: FileState = (0, 0, 0)
_LONGEST_NAME = 1000
_BLOB = struct.Struct(">32sQ")


class EntryRow(NamedTuple):
    """One entry. Times are seconds since 1970, sizes bytes; `blobs` is for `EntryRow.blob_sizes`.

    `gears`, `variants`, `compile_seconds` and `torch` are the values that the manifest's producer states, where it
    does; types and ranges were checked when the manifest was read. The last fields show whether the manifest and the
    use file have changed since they were read. All of it is flat: 100,000 of them are listed in a second.
    """

    label: str
    digest: str
    ranks: str
    manifest_size: int
    blobs_size: int
    gears: tuple[str, ...]
    variants: int
    compile_seconds: float
    torch: str
    created: float
    blobs: bytes
    has_folders: bool
    folders_size: int
    last_use: float
    hits: int
    manifest_inode: int
    manifest_changed_ns: int
    use_inode: int
    used_ns: int
    #: The whole name of the method, where the label (a folder name) is only its end, or lacks letters of it.
    long_name: str = ""

    @property
    def method(self) -> str:
        """`Class.method`, whole."""
        return self.long_name or self.label

    @property
    def name(self) -> str:
        """`<Class.method>-<key digest>`, as `CacheKey.name`."""
        return f"{self.label}-{self.digest}"

    @property
    def short_name(self) -> str:
        """`<label>-<start of the key>`, which names the entry in every command."""
        return short_name(self.name)

    @property
    def identity(self) -> Identity:
        """Label, key digest and ranks."""
        return self.label, self.digest, self.ranks

    @property
    def own_size(self) -> int:
        """Return the bytes that no other entry shares: the manifest, and the files that a backend keeps beside it."""
        return self.manifest_size + self.folders_size

    @property
    def size(self) -> int:
        """Return the bytes that a load may need: manifest, blobs, and the backend's files beside the manifest."""
        return self.own_size + self.blobs_size

    def blob_sizes(self) -> dict[str, int]:
        """The sizes of the blobs by their sha256."""
        return {digest.hex(): size for digest, size in _BLOB.iter_unpack(self.blobs)}

    def is_state_of(self, manifest: FileState) -> bool:
        """Whether the entry was read from a manifest in this state."""
        return manifest == (self.manifest_inode, self.manifest_changed_ns, self.manifest_size)

    def with_use(self, use: FileState) -> EntryRow:
        """The entry with its last use and its loads, from its use file.

        It is at least as old as its manifest here: the clock of the host that made it may be fast.
        """
        inode, time_ns, size = use
        last_use = max(min(self.created, self.manifest_changed_ns / 1e9), time_ns / 1e9)
        return self._replace(last_use=last_use, hits=size, use_inode=inode, used_ns=time_ns)

    def with_folders(self, folder: str) -> EntryRow:
        """Return the entry with the current size of the backend's files in the folder of the entry."""
        size = folders_size(folder)
        return self if size == self.folders_size else self._replace(folders_size=size)


def entry_of(manifest: Manifest, identity: Identity, manifest_size: int) -> EntryRow:
    """Return the entry of a manifest; the states of its files are not filled in yet."""
    producer: Mapping[str, Any] = manifest.producer
    return EntryRow(
        *identity,
        manifest_size=manifest_size,
        blobs_size=sum(manifest.blobs.values()),
        gears=tuple(producer.get("gears", ())),
        variants=producer.get("variants", 0),
        compile_seconds=float(producer.get("compile_seconds", 0.0)),
        torch=producer.get("torch", ""),
        created=manifest.created,
        blobs=b"".join(_BLOB.pack(bytes.fromhex(digest), size) for digest, size in manifest.blobs.items()),
        has_folders=producer.get("folders") is True,
        folders_size=0,
        last_use=manifest.created,
        hits=0,
        manifest_inode=0,
        manifest_changed_ns=0,
        use_inode=0,
        used_ns=0,
        long_name=_long_name(manifest.payload.get("method"), identity[0]),
    )


def _long_name(method: object, label: str) -> str:
    """Return the name of a method where its label differs from it and is really the label of this name."""
    if type(method) is not str or method == label or len(method) > _LONGEST_NAME:
        return ""
    return method if CacheKey(method, ()).safe_label == label else ""


def stored_entry(manifest: Manifest, identity: Identity, path: Path) -> EntryRow:
    """The entry of a manifest that was just read from or written to `path`; `OSError` when it was removed."""
    inode, changed_ns, size = state = manifest_state(path)
    if state == ABSENT:
        raise FileNotFoundError(2, os.strerror(2), str(path))
    entry = entry_of(manifest, identity, size)._replace(manifest_inode=inode, manifest_changed_ns=changed_ns)
    entry = entry.with_use(use_state(path.with_name(USE_NAME)))
    return entry.with_folders(str(path.parent)) if entry.has_folders else entry


def total_size(entries: Iterable[EntryRow]) -> int:
    """Bytes on disk; a blob that several entries share counts once."""
    blobs: dict[bytes, int] = {}
    own_size = 0
    for entry in entries:
        own_size += entry.own_size
        blobs.update(_BLOB.iter_unpack(entry.blobs))
    return own_size + sum(blobs.values())


def folders_size(folder: str) -> int:
    """Bytes of the files that a backend keeps in the folder of an entry; files that change meanwhile may count."""
    size = 0
    for name in BACKEND_FOLDERS:
        for inner, _, files in os.walk(f"{folder}/{name}"):
            for file in files:
                state = _lstat(f"{inner}/{file}")
                size += state.st_size if state is not None else 0
    return size


def manifest_state(path: str | Path) -> FileState:
    """Return the state of a manifest, with the time of its last change of any kind; `OSError` except when absent."""
    state = _lstat(path)
    return (state.st_ino, state.st_ctime_ns, state.st_size) if state is not None else ABSENT


def use_state(path: str | Path) -> FileState:
    """Return the state of a use file, with the time of the last load; `OSError` other than for an absent one."""
    state = _lstat(path)
    return (state.st_ino, state.st_mtime_ns, state.st_size) if state is not None else ABSENT


def _lstat(path: str | Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
