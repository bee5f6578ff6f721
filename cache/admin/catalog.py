"""The catalog: all entries of a cache, for commands that list, limit and clear it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from operator import attrgetter
from pathlib import Path

from msgspec import Struct, field

from gearcache.cache.admin.collect import Collected, collect, needed_blobs
from gearcache.cache.admin.evict import entries_to_evict
from gearcache.cache.admin.row import EntryRow, Identity, total_size
from gearcache.cache.admin.scan import read_entry, scan
from gearcache.cache.files.trust import check_folders
from gearcache.cache.layout import MANIFEST_NAME, USE_NAME, Layout
from gearcache.cache.limits import Limits
from gearcache.cache.locks.use import User, users_of
from gearcache.cache.manifest import Manifest, read_manifest
from gearcache.cache.quarantine import Quarantined, drop, excess, quarantine, quarantined
from gearcache.cache.remove import PATIENCE_SECONDS, deleting, remove_entry, unlink_all
from gearcache.collection import paused_collection
from gearcache.errors import CacheError, CorruptEntry

_POLL_SECONDS = 0.05
_MIN_DIGEST_PREFIX = 4


class Removal(Struct):
    """What was removed, or would be; `in_use` are entries that live processes have loaded, which stay.

    `freed` is in bytes; blobs count once, and only those that went with their last user. `quarantined` is the number of
    files deleted from the quarantine.
    """

    removed: list[EntryRow] = field(default_factory=list)
    in_use: list[EntryRow] = field(default_factory=list)
    faults: list[CacheError] = field(default_factory=list)
    blobs: int = 0
    quarantined: int = 0
    freed: int = 0
    #: Why no entry may be removed; also one of `faults`.
    blocked: CacheError | None = None

    def add(self, collected: Collected) -> None:
        """Add what was collected beside the removed entries."""
        self.freed += collected.freed
        self.blobs += len(collected.blobs)
        self.quarantined += collected.quarantined
        if collected.fault is not None and str(collected.fault) not in map(str, self.faults):
            self.faults.append(collected.fault)

    @contextmanager
    def noting_faults(self) -> Iterator[None]:
        """Record a fault of the cache instead of raising it."""
        try:
            yield
        except CacheError as error:
            self.faults.append(error)
        except OSError as error:
            self.faults.append(CacheError(f"`{error.filename}` cannot be removed: {error.strerror}"))


class Catalog:
    """The entries of a cache of all ranks; safe beside any number of processes that read, write or remove.

    Read methods never raise on a damaged cache; `faults` holds the faults that the last `entries()` found. Methods that
    remove wait at most `patience` seconds for writers, and report a timeout.
    """

    def __init__(
        self, layout: Layout, *, clock: Callable[[], float] = time.time, patience: float = PATIENCE_SECONDS
    ) -> None:
        self.layout = layout
        self.patience = patience
        self.clock = clock
        self.faults: list[CacheError] = []
        self._entries = str(layout.entries_folder)

    def entries(self) -> list[EntryRow]:
        """All readable entries, the last used first."""
        with paused_collection():
            scan_result = scan(self.layout)
            self.faults = scan_result.faults
            # Two stable sorts by one number are four times as fast as one sort by a pair of numbers.
            scan_result.entries.sort(key=attrgetter("created"), reverse=True)
            scan_result.entries.sort(key=attrgetter("last_use"), reverse=True)
            return scan_result.entries

    def find(self, text: str) -> list[EntryRow]:
        """Entries by label, `<label>-<start of digest>`, start of digest (4 digits at least), or path; may be empty."""
        path = Path(text).absolute()
        return [entry for entry in self.entries() if self._is_meant(entry, text, path, self.path(entry))]

    def path(self, entry: EntryRow) -> Path:
        """The manifest of an entry."""
        return self.layout.entry(*entry.identity) / MANIFEST_NAME

    def path_text(self, entry: EntryRow) -> str:
        """The same as text, without the checks: for an entry that this catalog lists."""
        return "/".join(filter(None, (self._entries, *entry.identity, MANIFEST_NAME)))

    def read(self, entry: EntryRow) -> Manifest:
        """The manifest of an entry, verified; `CacheError`, also when it was removed meanwhile."""
        path = self.path(entry)
        try:
            check_folders(self.layout.root, path.parent)
            return read_manifest(path, entry.digest)
        except OSError as error:
            raise CacheError(f"`{path}` cannot be read: {error.strerror}") from error

    def users(self, entry: EntryRow) -> list[User]:
        """Live processes of this host that have the entry loaded, as far as Linux reports."""
        return users_of(self.path(entry).with_name(USE_NAME))

    def remove(
        self, entries: Iterable[EntryRow], *, wait: float = 0.0, only_unused: bool = False, dry_run: bool = False
    ) -> Removal:
        """Remove entries, and the blobs that no other entry needs; waits `wait` seconds in all for their users.

        With `only_unused`, an entry that a process has used since it was listed stays, and counts as in use.
        A process that is killed meanwhile leaves every entry either whole or removed, and maybe files for `collect`.
        """
        outcome = Removal()
        self._remove(list(entries), wait, only_unused, dry_run, outcome)
        return outcome

    def prune(
        self,
        *,
        max_size: int | None = None,
        max_age: float | None = None,
        keep: Collection[Identity] = (),
        dry_run: bool = False,
    ) -> Removal:
        """Remove the least recently used entries until the cache has at most `max_size` bytes, and the entries that no
        process used for `max_age` seconds.

        Never removes an entry that a live process uses, nor an entry in `keep`; where the limits are met without them,
        `in_use` is empty. The quarantine counts towards the limits, and is emptied first. While a manifest cannot be
        read, no entry is removed: it may name any blob, so none could be freed.
        """
        outcome = Removal()
        scan_result = scan(self.layout, exact=True)
        outcome.faults += scan_result.faults
        remaining = scan_result.entries
        quarantine_size = self._prune_quarantine(Limits(max_size, max_age), total_size(remaining), dry_run, outcome)
        try:
            needed_blobs(scan_result)
        except CacheError as error:  # one of the faults above
            outcome.blocked = error
            return outcome
        limits = Limits(None if max_size is None else max(0, max_size - quarantine_size), max_age)
        protected = set(keep)
        while victims := entries_to_evict(remaining, limits, self.clock(), protected):
            busy, faults = len(outcome.in_use), len(outcome.faults)
            self._remove(victims, 0.0, True, dry_run, outcome)
            removed_identities = {entry.identity for entry in outcome.removed}
            remaining = [entry for entry in remaining if entry.identity not in removed_identities]
            # Other entries must be removed instead of those in use.
            protected |= {entry.identity for entry in outcome.in_use}
            if len(outcome.in_use) == busy or len(outcome.faults) > faults:
                break
        if not entries_to_evict(remaining, limits, self.clock(), keep):
            outcome.in_use.clear()  # others were removed instead
        return outcome

    def collect(self, *, dry_run: bool = False) -> Collected:
        """Remove blobs that no entry names, unfinished files of dead writers, and leftovers of removed entries."""
        return collect(self.layout, self.clock(), self.patience, dry_run=dry_run)

    def damaged(self) -> list[CorruptEntry]:
        """Select from the faults of the last `entries` the manifests that will never be readable."""
        return [fault for fault in self.faults if isinstance(fault, CorruptEntry)]

    def set_aside(self, damaged: Iterable[CorruptEntry]) -> None:
        """Move damaged manifests to the quarantine, as a lookup would; a manifest that is sound by now stays."""
        for fault in damaged:
            label, digest, _ = self.layout.identify(fault.path)
            name = f"{label}-{digest}.manifest"
            quarantine(self.layout, fault, name, partial(read_entry, self.layout, fault.path))

    def clear_quarantine(self, outcome: Removal, *, max_age: float = 0.0, dry_run: bool = False) -> None:
        """Delete files that have been in the quarantine for longer than `max_age` seconds."""
        before = self.clock() - max_age if max_age else math.inf
        self._drop(excess(quarantined(self.layout), before=before), dry_run, outcome)

    def _prune_quarantine(self, limits: Limits, entries_size: int, dry_run: bool, outcome: Removal) -> int:
        """Make the quarantine fit beside the entries, and return the bytes that it keeps."""
        items = quarantined(self.layout)
        room = None if limits.max_size is None else max(0, limits.max_size - entries_size)
        before = 0.0 if limits.max_age is None else self.clock() - limits.max_age
        dropped = excess(items, before=before, room=room)
        self._drop(dropped, dry_run, outcome)
        return sum(item.size for item in items[len(dropped) :])

    def _drop(self, items: list[Quarantined], dry_run: bool, outcome: Removal) -> None:
        with outcome.noting_faults():
            outcome.freed += sum(item.size for item in items) if dry_run else drop(self.layout, items)
            outcome.quarantined += len(items)

    def _remove(self, pending: list[EntryRow], wait: float, only_unused: bool, dry_run: bool, outcome: Removal) -> None:
        deadline = time.monotonic() + wait
        with outcome.noting_faults():
            while True:
                with nullcontext() if dry_run else deleting(self.layout, self.patience):
                    pending = self._remove_free(pending, only_unused, dry_run, outcome)
                if not pending or time.monotonic() >= deadline:
                    break
                time.sleep(_POLL_SECONDS)
            outcome.in_use += pending

    def _remove_free(
        self, pending: list[EntryRow], only_unused: bool, dry_run: bool, outcome: Removal
    ) -> list[EntryRow]:
        """Remove the entries that no process uses, and return the others."""
        removed: list[EntryRow] = []
        busy: list[EntryRow] = []
        for entry in pending:
            with outcome.noting_faults():
                last_use = entry.used_ns if only_unused else None
                is_free = remove_entry(self.layout, entry.identity, last_use=last_use, dry_run=dry_run)
                (removed if is_free else busy).append(entry)
        outcome.removed += removed
        outcome.freed += sum(entry.own_size for entry in removed)
        if removed:
            with outcome.noting_faults():
                self._drop_blobs(removed, dry_run, outcome)
        return busy

    def _drop_blobs(self, removed_entries: list[EntryRow], dry_run: bool, outcome: Removal) -> None:
        scan_result = scan(self.layout, exact=True)
        removed_identities = {entry.identity for entry in outcome.removed}
        scan_result.entries = [entry for entry in scan_result.entries if entry.identity not in removed_identities]
        needed_digests = needed_blobs(scan_result)
        sizes = {digest: size for entry in removed_entries for digest, size in entry.blob_sizes().items()}

        def count(path: Path, size: int) -> None:
            outcome.blobs += 1
            outcome.freed += size

        unneeded = [digest for digest in sizes if digest not in needed_digests]
        if dry_run:
            for digest in unneeded:
                count(self.layout.blob(digest), sizes[digest])
        else:
            unlink_all(self.layout, map(self.layout.blob, unneeded), count)

    @staticmethod
    def _is_meant(entry: EntryRow, text: str, path: Path, manifest: Path) -> bool:
        if text in (entry.label, entry.method) or path in (manifest, manifest.parent):
            return True
        label, _, digest = text.rpartition("-")
        if label not in ("", entry.label):
            return False
        return len(digest) >= _MIN_DIGEST_PREFIX and entry.digest.startswith(digest)
