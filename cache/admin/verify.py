"""Verifying a whole cache: every manifest, every blob, and what belongs to no entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.row import EntryRow
from gearcache.cache.admin.scan import read_entry
from gearcache.cache.atomic import check_digest
from gearcache.cache.layout import Layout, is_digest
from gearcache.cache.manifest import OtherFormat
from gearcache.cache.quarantine import quarantine
from gearcache.cache.remove import PATIENCE_SECONDS, deleting
from gearcache.cache.signature import Signer
from gearcache.cache.trust import check_folders
from gearcache.errors import CacheError, CorruptEntry, UnsafePath, UnsignedEntry

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong. `kind` is `corrupt`, `missing` (an entry lacks a blob), `unsafe`, `unsigned`,
    `unreadable`, `unreferenced` (a blob that no entry names) or `leftover` (of a killed writer); the last two are
    no danger, and `repaired` when they were collected.
    """

    path: Path
    kind: str
    reason: str
    repaired: bool = False


@dataclass
class Verification:
    """What was read, and what is wrong; `size` is in bytes."""

    entries: int = 0
    blobs: int = 0
    size: int = 0
    faults: list[Fault] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether all entries can be used: what is left of killed writers does no harm."""
        return all(fault.repaired or fault.kind in ("unreferenced", "leftover") for fault in self.faults)


def verify(
    layout: Layout, *, repair: bool = False, signer: Signer | None = None, progress: Progress | None = None
) -> Verification:
    """Read every manifest and blob and compare all digests. Never raises for what is wrong with the cache.

    `repair` moves what is corrupt to the quarantine, entries that lack a blob as well, and collects leftovers; what
    may not be trusted or read is left to its owner. `progress` gets files done and files in all.
    """
    return _Verifier(layout, repair, signer, progress).run()


class _Verifier:
    def __init__(self, layout: Layout, repair: bool, signer: Signer | None, progress: Progress | None) -> None:
        self._layout = layout
        self._repair = repair
        self._signer = signer
        self._progress = progress
        self._found = Verification()
        self._done = 0

    def run(self) -> Verification:
        try:
            blobs = [path for path in self._layout.blobs() if is_digest(path.name)]
            manifests = list(self._layout.entries())
        except OSError as error:
            self._add(Path(error.filename or self._layout.root), CacheError(str(error.strerror)))
            return self._found
        total = len(blobs) + len(manifests)
        # Blobs first: an entry whose blob goes to the quarantine lacks one then.
        for path in blobs:
            self._step(total)
            if self._check(path, partial(self._read_blob, path)):
                self._found.blobs += 1
        for path in manifests:
            self._step(total)
            if self._check(path, partial(self._read_entry, path)):
                self._found.entries += 1
        self._collect()
        return self._found

    def _check(self, path: Path, read: Callable[[], object]) -> bool:
        try:
            read()
        except FileNotFoundError:
            return False  # removed meanwhile
        except (CacheError, OSError) as error:
            self._add(path, error, read)
            return False
        return True

    def _read_blob(self, path: Path) -> None:
        check_folders(self._layout.root, path.parent)
        check_digest(path, path.name)
        self._found.size += path.stat().st_size

    def _read_entry(self, path: Path) -> None:
        entry = read_entry(self._layout, path, self._signer)
        missing = self._missing_blob(entry)
        if missing is not None:
            # Unless the entry was removed meanwhile: its blobs go after it.
            path.stat()
            raise _MissingBlobError(path, missing)
        self._found.size += entry.own_size

    def _missing_blob(self, entry: EntryRow) -> str | None:
        for digest, size in entry.blob_sizes().items():
            try:
                found = self._layout.blob(digest).lstat().st_size
            except OSError:
                return f"its blob {digest} is missing"
            if found != size:
                return f"its blob {digest} has {found} bytes instead of {size}"
        return None

    def _add(self, path: Path, error: CacheError | OSError, read: Callable[[], object] | None = None) -> None:
        reason = error.reason if isinstance(error, (CorruptEntry, UnsafePath)) else str(error)
        repaired = False
        if self._repair and read is not None and isinstance(error, CorruptEntry) and not isinstance(error, OtherFormat):
            repaired = self._quarantine(error, path, read)
        self._found.faults.append(Fault(path, _kind(error), reason, repaired))

    def _quarantine(self, error: CorruptEntry, path: Path, read: Callable[[], object]) -> bool:
        try:
            with deleting(self._layout, PATIENCE_SECONDS):  # so that no blob that was missing comes in between
                quarantine(self._layout, error, _quarantine_name(self._layout, path), read)
            return not path.exists()
        except (CacheError, OSError):
            return False

    def _collect(self) -> None:
        collected = Catalog(self._layout).collect(dry_run=not self._repair)
        faults = self._found.faults
        faults += [Fault(path, "unreferenced", "no entry names this blob", self._repair) for path in collected.blobs]
        faults += [Fault(path, "leftover", "its writer ended early", self._repair) for path in collected.leftovers]

    def _step(self, total: int) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, total)


class _MissingBlobError(CorruptEntry):
    """An entry that lacks a blob."""


def _kind(error: CacheError | OSError) -> str:
    kinds: list[tuple[type[Exception], str]] = [
        (_MissingBlobError, "missing"),
        (CorruptEntry, "corrupt"),
        (UnsignedEntry, "unsigned"),
        (UnsafePath, "unsafe"),
    ]
    return next((name for kind, name in kinds if isinstance(error, kind)), "unreadable")


def _quarantine_name(layout: Layout, path: Path) -> str:
    if is_digest(path.name):
        return f"{path.name}.blob"
    label, digest, _ = layout.identify(path)
    return f"{label}-{digest}.manifest"
