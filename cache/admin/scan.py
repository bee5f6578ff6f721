"""Find all entries: from the index where it is still valid, from manifests elsewhere."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, field

from gearcache.cache.admin.row import EntryRow, Identity, manifest_state, stored_entry, use_state
from gearcache.cache.files.trust import check_folders
from gearcache.cache.layout import MANIFEST_NAME, USE_NAME, Layout, is_digest
from gearcache.cache.manifest import read_manifest
from gearcache.cache.signatures.signature import Signer
from gearcache.collection import paused_collection
from gearcache.errors import CacheError, CorruptEntry

MANY_ENTRIES = 10_000


class Scan(Struct):
    """All readable entries, unordered, and the faults of the others."""

    entries: list[EntryRow] = field(default_factory=list)
    faults: list[CacheError] = field(default_factory=list)


def scan(layout: Layout, *, exact: bool = False) -> Scan:
    """Look at every entry, and update the index where possible. Never raises.

    The state of every manifest is checked, and the manifest is read when it has changed. Without `exact`, in a large
    cache, the index is trusted where the use file shows that no process used or published the entry since: one system
    call per entry.
    """
    # Imported here: the command line does more than list, and this imports SQLite.
    from gearcache.cache.admin.index import open_index

    # 100,000 entries are a million objects, none of them garbage.
    with paused_collection(), open_index(layout) as index:
        index_rows = _Known(index.entries if index is not None else [])
        result = Scan()
        changed_identities = _Look(layout, index_rows, exact or index_rows.count <= MANY_ENTRIES, result).at_all()
        if index is not None:
            index.save(result.entries, changed_identities)
    return result


def read_entry(layout: Layout, path: Path, signer: Signer | None = None) -> EntryRow:
    """The entry of one manifest, read in full; `CacheError` or `FileNotFoundError`."""
    label, digest, ranks = layout.identify(path)
    try:
        check_folders(layout.root, path.parent)
        manifest = read_manifest(path, digest, signer)
        # On a file system without case, `m.run` is stored in the folder of `M.run`.
        if manifest.name.lower() != f"{label}-{digest}".lower():
            raise MisplacedEntry(path, f"it belongs to the entry {manifest.name}", *manifest.blobs)
        return stored_entry(manifest, (label, digest, ranks), path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CacheError(f"`{path}` cannot be read: {error.strerror}") from error


class MisplacedEntry(CorruptEntry):
    """A sound manifest in the folder of another label, and the blobs that it names."""

    def __init__(self, path: Path | str, reason: str, *blobs: str) -> None:
        super().__init__(path, reason)
        self.data = str(path), reason, *blobs
        self.blobs = blobs


class _Known:
    """The rows of the index: by label and digest; the entries of jobs with ranks are kept separately."""

    def __init__(self, entries: Iterable[EntryRow]) -> None:
        self.unranked: defaultdict[str, dict[str, EntryRow]] = defaultdict(dict)
        self.ranked: defaultdict[tuple[str, str], dict[str, EntryRow]] = defaultdict(dict)
        # The last row of an identity is the newest.
        for entry in entries:
            if entry.ranks:
                self.ranked[entry.label, entry.digest][entry.ranks] = entry
            else:
                self.unranked[entry.label][entry.digest] = entry
        self.count = sum(map(len, self.unranked.values())) + sum(map(len, self.ranked.values()))

    def identities(self) -> set[Identity]:
        entries = [*self.unranked.values(), *self.ranked.values()]
        return {entry.identity for group in entries for entry in group.values()}


class _Look:
    """One look at the disk."""

    def __init__(self, layout: Layout, index_rows: _Known, exact: bool, result: Scan) -> None:
        self._layout = layout
        self._index_rows = index_rows
        self._exact = exact
        self._result = result
        self._entries_folder = str(layout.entries_folder)
        self._changed_identities: set[Identity] = set()
        #: How many of the indexed entries still exist.
        self._present_count = 0

    def at_all(self) -> set[Identity]:
        """Fill in the entries found, and return the identities whose rows in the index must change."""
        try:
            for label in self._layout.labels():
                self._look_at_label(label)
        except OSError as error:
            self._result.faults.append(CacheError(f"`{error.filename}` cannot be read: {error.strerror}"))
        if self._present_count != self._index_rows.count:
            self._changed_identities |= self._index_rows.identities() - {
                entry.identity for entry in self._result.entries
            }
        return self._changed_identities

    def _look_at_label(self, label: str) -> None:
        unranked = self._index_rows.unranked.get(label, {})
        ranked = self._index_rows.ranked
        folder = f"{self._entries_folder}/{label}"
        unchanged = self._result.entries
        count_before = len(unchanged)
        other_digests = []
        lstat, exact = os.lstat, self._exact
        # Texts instead of paths, which take ten times as long: these lines may run for 100,000 entries.
        for digest in self._layout.digest_names(label):
            entry = unranked.get(digest)
            if entry is None or exact or entry.has_folders or (ranked and (label, digest) in ranked):
                if is_digest(digest):
                    other_digests.append(digest)
                continue
            try:
                use = lstat(f"{folder}/{digest}/{USE_NAME}")
            except OSError:
                other_digests.append(digest)
                continue
            if use.st_mtime_ns == entry.used_ns and use.st_size == entry.hits and use.st_ino == entry.use_inode:
                unchanged.append(entry)
            else:
                other_digests.append(digest)
        self._present_count += len(unchanged) - count_before
        for digest in other_digests:
            try:
                self._look_at(label, digest)
            except OSError as error:
                self._result.faults.append(CacheError(f"`{error.filename}` cannot be read: {error.strerror}"))

    def _look_at(self, label: str, digest: str) -> None:
        entry = self._index_rows.unranked.get(label, {}).get(digest)
        entries = [*([entry] if entry is not None else ()), *self._index_rows.ranked.get((label, digest), {}).values()]
        unread_paths = []
        key_folder = f"{self._entries_folder}/{label}/{digest}"
        for entry in entries:
            folder = f"{key_folder}/{entry.ranks}" if entry.ranks else key_folder
            use = use_state(f"{folder}/{USE_NAME}")
            is_used = use != (entry.use_inode, entry.used_ns, entry.hits)
            if (self._exact or is_used) and not entry.is_state_of(manifest_state(f"{folder}/{MANIFEST_NAME}")):
                unread_paths.append(self._layout.entry(label, digest, entry.ranks) / MANIFEST_NAME)
                continue
            self._present_count += 1
            current_entry = entry.with_use(use) if is_used else entry
            if entry.has_folders:
                current_entry = current_entry.with_folders(folder)
            self._result.entries.append(current_entry)
            if current_entry is not entry:
                self._changed_identities.add(entry.identity)
        if not entries or (self._exact and not _has_ranks_of(key_folder, entries)):
            seen_paths = {self._layout.entry(*entry.identity) / MANIFEST_NAME for entry in entries}
            unread_paths += [path for path in self._layout.manifests_of(label, digest) if path not in seen_paths]
        self._read(unread_paths)

    def _read(self, paths: Iterable[Path]) -> None:
        for path in paths:
            try:
                entry = read_entry(self._layout, path)
            except FileNotFoundError:
                continue
            except CacheError as error:
                self._result.faults.append(error)
            else:
                self._result.entries.append(entry)
                self._changed_identities.add(entry.identity)


def _has_ranks_of(folder: str, entries: list[EntryRow]) -> bool:
    """Return whether the folder of a key holds as many folders as there are entries of jobs with ranks.

    The number of links mostly gives the answer.
    """
    try:
        folder_count = os.lstat(folder).st_nlink - 2
    except FileNotFoundError:  # removed since it was listed: a closer look finds nothing
        return False
    return folder_count == sum(1 for entry in entries if entry.ranks)
