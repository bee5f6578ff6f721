"""Verify a whole cache: every manifest, every blob, and files that belong to no entry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.repair import NO_PARTS, Parts, lost_blobs, repair_entry, split
from gearcache.cache.admin.scan import read_entry
from gearcache.cache.files.trust import check_digest, check_folders, read_trusted
from gearcache.cache.layout import Layout, is_digest
from gearcache.cache.manifest import MAX_MANIFEST_SIZE, OtherFormat, read_manifest
from gearcache.cache.quarantine import quarantine
from gearcache.cache.remote.trust import Trust
from gearcache.cache.remove import PATIENCE_SECONDS, deleting
from gearcache.errors import CacheError, CorruptEntry, UnsafePath, UnsignedEntry

Progress = Callable[[int, int], None]


class Fault(Struct, frozen=True):
    """One fault of a cache.

    `kind` is `corrupt`, `incomplete` (an entry whose blobs are damaged or missing), `unsafe`, `unsigned`, `unreadable`,
    `unreferenced` (a blob that no entry names) or `leftover` (of a killed writer). The last two are harmless, and
    `repaired` when they were collected.

    `entries` are the names of the affected entries, `parts` the gears that cannot be used, and `kept` the gears that
    can. An incomplete entry that was repaired without anything `kept` has gone to the quarantine.
    """

    path: Path
    kind: str
    reason: str
    repaired: bool = False
    entries: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    size: int = 0

    @property
    def is_harmless(self) -> bool:
        """Return whether it is only a leftover of a killed process."""
        return self.kind in ("unreferenced", "leftover")


class Verification(Struct):
    """The result of a verification. `entries`, `blobs` and `size` (in bytes) count what is sound, after a repair; the
    other fields count what there was to read.
    """

    entries: int = 0
    blobs: int = 0
    size: int = 0
    all_entries: int = 0
    all_blobs: int = 0
    faults: list[Fault] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether all entries can be used: leftovers of killed writers are harmless."""
        return all(fault.repaired or fault.is_harmless for fault in self.faults)


def verify(
    layout: Layout,
    *,
    repair: bool = False,
    trust: Trust | None = None,
    progress: Progress | None = None,
    parts: Parts = NO_PARTS,
) -> Verification:
    """Read every manifest and blob and compare all digests. Never raises for a fault of the cache.

    `repair` moves corrupt files to the quarantine, removes the gears of entries that need a lost blob, as far as
    `parts` understands them, and collects leftovers; files that are untrusted or unreadable are left to their owner.
    `progress` receives files done and files in all. Of `trust`, the HMAC key checks every entry, and public keys check
    the entries that are signed by key pair.
    """
    return _Verifier(layout, repair, trust or Trust(), progress, parts).run()


class _Verifier:
    def __init__(self, layout: Layout, repair: bool, trust: Trust, progress: Progress | None, parts: Parts) -> None:
        self._layout = layout
        self._repair = repair
        self._trust = trust
        self._progress = progress
        self._parts = parts
        self._result = Verification()
        self._done_count = 0
        #: Bytes of sound files, and the faults of blobs by their digests.
        self._blobs: dict[Path, int] = {}
        self._entries: dict[Path, int] = {}
        self._damaged: dict[str, Fault] = {}

    def run(self) -> Verification:
        result = self._result
        try:
            blobs = [path for path in self._layout.blobs() if is_digest(path.name)]
            manifests = list(self._layout.entries())
        except OSError as error:
            self._add(Path(error.filename or self._layout.root), CacheError(str(error.strerror)))
            return result
        result.all_entries, result.all_blobs = len(manifests), len(blobs)
        # Blobs first: an entry is sound when its blobs are.
        for path in blobs:
            self._step()
            self._check(path, partial(self._read_blob, path))
        for path in manifests:
            self._step()
            self._check(path, partial(self._read_entry, path))
        result.faults = [*self._damaged.values(), *result.faults]
        self._collect()
        result.entries, result.blobs = len(self._entries), len(self._blobs)
        result.size = sum(self._entries.values()) + sum(self._blobs.values())
        return result

    def _check(self, path: Path, read: Callable[[], object]) -> None:
        try:
            read()
        except FileNotFoundError:
            pass  # removed meanwhile
        except (CacheError, OSError) as error:
            self._add(path, error, read)

    def _read_blob(self, path: Path) -> None:
        check_folders(self._layout.root, path.parent)
        check_digest(path, path.name)
        self._blobs[path] = path.stat().st_size

    def _read_entry(self, path: Path) -> None:
        entry = read_entry(self._layout, path, self._trust.hmac)
        if self._trust.keys or self._trust.signing_key is not None:
            self._check_pair(path)
        lost_reasons = lost_blobs(self._layout, entry, self._damaged)
        if not lost_reasons:
            self._entries[path] = entry.own_size
            return
        # Unless the entry was removed meanwhile: its blobs go after it.
        manifest = read_manifest(path, entry.digest, self._trust.hmac)
        parts, kept_parts = split(manifest, lost_reasons, self._parts)
        for digest in lost_reasons.keys() & self._damaged.keys():
            names = [part.text for part in self._parts.of(manifest) if digest in part.blobs]
            fault = self._damaged[digest]
            fault = replace(fault, entries=(*fault.entries, entry.name), parts=(*fault.parts, *names))
            self._damaged[digest] = fault
        reason = next(iter(lost_reasons.values())) + (
            f", and {len(lost_reasons) - 1} more" if len(lost_reasons) > 1 else ""
        )
        repaired = False
        if self._repair:
            outcome = repair_entry(self._layout, path, self._damaged, self._parts, self._trust)
            repaired, reason = not outcome.problem, outcome.problem or reason
            parts, kept_parts = (outcome.removed, outcome.kept) if repaired else (parts, kept_parts)
            if repaired and path.exists():
                self._entries[path] = read_entry(self._layout, path, self._trust.hmac).own_size
        self._result.faults.append(Fault(path, "incomplete", reason, repaired, (entry.name,), parts, kept_parts))

    def _check_pair(self, path: Path) -> None:
        refusal = self._trust.local_problem(read_trusted(path, MAX_MANIFEST_SIZE), str(path))
        if refusal is not None:
            raise UnsignedEntry(path, refusal.problem, refusal.remedy)

    def _add(self, path: Path, error: CacheError | OSError, read: Callable[[], object] | None = None) -> None:
        reason = error.reason if isinstance(error, (CorruptEntry, UnsafePath)) else str(error)
        repaired = False
        if self._repair and read is not None and isinstance(error, CorruptEntry) and not isinstance(error, OtherFormat):
            repaired = self._quarantine(error, path, read)
        fault = Fault(path, _kind(error), reason, repaired)
        if is_digest(path.name):
            self._damaged[path.name] = fault
        else:
            self._result.faults.append(replace(fault, entries=_entry_names(self._layout, path)))

    def _quarantine(self, error: CorruptEntry, path: Path, read: Callable[[], object]) -> bool:
        try:
            with deleting(self._layout, PATIENCE_SECONDS):  # so that no missing blob is added meanwhile
                quarantine(self._layout, error, _quarantine_name(self._layout, path), read)
            return not path.exists()
        except (CacheError, OSError):
            return False

    def _collect(self) -> None:
        collected = Catalog(self._layout).collect(dry_run=not self._repair)
        for kind, reason, paths in (
            ("unreferenced", "no entry names this blob", collected.blobs),
            ("leftover", "its writer ended early", collected.leftovers),
        ):
            for path in paths:
                size = self._blobs.pop(path, 0) if self._repair else self._blobs.get(path, 0)
                self._result.faults.append(Fault(path, kind, reason, self._repair, size=size))
        # An unreadable manifest, which keeps blobs from being collected as well, is a fault of its own.
        if collected.fault is not None and self._result.is_sound:
            self._add(self._layout.root, collected.fault)

    def _step(self) -> None:
        self._done_count += 1
        if self._progress is not None:
            self._progress(self._done_count, self._result.all_entries + self._result.all_blobs)


def _kind(error: CacheError | OSError) -> str:
    kinds: list[tuple[type[Exception], str]] = [
        (CorruptEntry, "corrupt"),
        (UnsignedEntry, "unsigned"),
        (UnsafePath, "unsafe"),
    ]
    return next((name for kind, name in kinds if isinstance(error, kind)), "unreadable")


def _entry_names(layout: Layout, path: Path) -> tuple[str, ...]:
    try:
        label, digest, _ = layout.identify(path)
    except ValueError:
        return ()
    return (f"{label}-{digest}",)


def _quarantine_name(layout: Layout, path: Path) -> str:
    if is_digest(path.name):
        return f"{path.name}.blob"
    label, digest, _ = layout.identify(path)
    return f"{label}-{digest}.manifest"
