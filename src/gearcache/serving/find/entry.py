"""One entry of the store, as a binding reads and writes it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct
from msgspec.structs import asdict, replace

from gearcache.cache.files.trust import check_folders
from gearcache.cache.keys.key import CacheKey, Missing
from gearcache.cache.layout import Layout
from gearcache.cache.limits import Limits
from gearcache.cache.manifest import Manifest
from gearcache.cache.result import Hit, Miss, MissReason
from gearcache.cache.store import DiskStore
from gearcache.errors import CacheError
from gearcache.guards.dispatch.stored.packed_entry import entry_from_plain, entry_to_plain
from gearcache.guards.dispatch.stored.stored_rows import IMPOSSIBLE, MOST_IMPOSSIBLE
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.reason import Reason
from gearcache.interrupts import raise_interrupt
from gearcache.options import Settings
from gearcache.telemetry.history import History
from gearcache.telemetry.spans import span

if TYPE_CHECKING:
    from gearcache.building.request import BuildResult
    from gearcache.cache.protocol import Store
    from gearcache.cache.remote.urls import TierURL
    from gearcache.serving.miss.impossible_call import ImpossibleCall

logger = logging.getLogger("gearcache")


class Absence(Struct, frozen=True):
    """Why there is no entry of a key that can be read."""

    reason: Reason
    #: The kind of the miss, for counts.
    kind: str
    #: Whether the cache is at fault, so that no compile could be stored either.
    is_fault: bool = False


class Entry:
    """The variants that are stored under one key. Reading records misses; writing needs `exclusive`."""

    def __init__(
        self,
        key: CacheKey,
        layout: Layout,
        settings: Settings,
        history: History,
        *,
        keeps_files: bool = False,
        place: tuple[str, int] = ("", 0),
        serves: bool = True,
    ) -> None:
        self.key = key
        self.layout = layout
        self._settings = settings
        self._history = history
        self._keeps_files = keeps_files
        #: Whether its loads and misses count for `gearcache stats`.
        self.serves = serves
        #: File and line of the method.
        self._place = place
        #: Sizes in bytes of the blobs that the manifest names, by digest.
        self._blob_sizes: dict[str, int] = {}
        #: The store on disk keeps counting this process as a user, even if work continues in memory.
        self._disk_store = self._open_store(layout)
        self.store: Store = self._disk_store
        self._is_counted = False

    def look_up(self) -> Manifest | Reason:
        """Return the stored manifest, or why there is none; counts nothing."""
        try:
            outcome = self.store.lookup(self.key)
        except CacheError as error:
            return Reason("unsafe", str(error))
        return outcome.manifest if isinstance(outcome, Hit) else _reason_of(outcome, self._place)

    def read(self) -> list[StoredVariant] | Absence:
        """Return the stored variants at the first lookup, or why there is no entry; this process then uses the entry.

        A fault of the cache is recorded as one, and then no variant is stored.
        """
        with span("manifest", self._history.name):
            try:
                outcome = self._load()
            except Exception as error:
                self._history.fault(error)
                return []
            if isinstance(outcome, Hit):
                variants = self.decode(outcome.manifest)
                return Absence(variants, variants.kind) if isinstance(variants, Reason) else variants
        # A mode or a disk cannot be mended by a compile.
        is_fault = outcome.reason is MissReason.UNREADABLE
        return Absence(_reason_of(outcome, self._place), outcome.reason.value, is_fault)

    def note_absence(self, absence: Absence) -> None:
        """Record the miss of an entry that is not there, or cannot be read."""
        self._history.miss(absence.reason, kind=absence.kind)
        if absence.is_fault:
            self._history.fault(CacheError(f"{absence.reason.text}: {absence.reason.advice}"))

    @property
    def may_have_siblings(self) -> bool:
        """Whether variants of other entries can serve: not where a backend keeps files beside those of the store."""
        return not (self.is_in_memory or self._keeps_files)

    def read_again(self) -> list[StoredVariant]:
        """Return the variants that are stored by now; raises `CacheError`."""
        outcome = self._load(explain=False)
        if isinstance(outcome, Miss):
            if outcome.reason is MissReason.UNREADABLE:  # for now: what is stored must not be replaced
                raise CacheError(outcome.detail)
            return []
        variants = self._readable(outcome.manifest)
        return [] if isinstance(variants, Reason) else variants

    def _readable(self, manifest: Manifest) -> list[StoredVariant] | Reason:
        """Return the variants of a manifest; a manifest that cannot be read is a miss."""
        variants = self.decode(manifest)
        if isinstance(variants, Reason):
            self._history.miss(variants, kind=variants.kind)
        return variants

    def _load(self, *, explain: bool = True) -> Hit | Miss:
        """Look up the entry as a user of it, which every load does; counts once variants that others stored."""
        outcome = self.store.load(self.key, explain=explain)
        if isinstance(outcome, Hit) and not self._is_counted:
            self._is_counted = True
            self.store.count_load(self.key, served=self.serves)
        return outcome

    def decode(self, manifest: Manifest) -> list[StoredVariant] | Reason:
        """Return the variants of a manifest, or the reason why it cannot be read."""
        self._blob_sizes |= manifest.blobs
        try:
            return entry_from_plain(manifest.payload)
        except Exception as error:  # data of an unknown form raises anything
            raise_interrupt(error)
            text = f"the variants of {self.key.short_name} cannot be read: {type(error).__name__}: {error}"
            return Reason("unreadable", text)

    def size_of(self, variants: list[StoredVariant]) -> int:
        """Return the bytes of all blobs of some variants."""
        return sum(self._blob_sizes.get(digest, 0) for digest in {item for each in variants for item in blobs_of(each)})

    @property
    def is_in_memory(self) -> bool:
        """Whether the cache cannot be used, so that variants are in memory only."""
        return self.store is not self._disk_store

    @property
    def folder(self) -> Callable[[str], Path] | None:
        """The function that returns a folder of this entry for the backend's own files; None if there is none."""
        return None if self.is_in_memory else self._folder

    def _folder(self, name: str) -> Path:
        """Return a folder; raises `CacheError` if others can write to it."""
        folder = self.layout.manifest(self.key).parent / name
        try:
            check_folders(self.layout.root, folder)
        except OSError as error:
            raise CacheError(f"`{folder}` cannot be used: {error.strerror}") from error
        return folder

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Be the only writer of the entry on this host; raises `CacheError` if that is impossible.

        Misses are counted before anything is compiled; with tiers they are counted afterwards, as a tier may serve.
        """
        from gearcache.telemetry.progress import WaitLine

        with WaitLine(self._history.name, self._settings.lock_timeout) as line, self.store.exclusive(self.key):
            line.end()
            if not self._settings.remotes:
                self._count_misses()
            try:
                yield
            finally:
                self._count_misses()

    def _count_misses(self) -> None:
        from gearcache.cache.admin.tally import count_misses

        if self.serves and not self.is_in_memory:  # else no call waited because of the misses
            count_misses(self.layout, self.key.safe_label, self._history.uncounted.elements())
        self._history.uncounted.clear()

    @property
    def remotes(self) -> list[TierURL]:
        """The tiers beyond this host, in the order in which they are asked; `OptionError` for an invalid one."""
        from gearcache.cache.remote.urls import parse_urls

        return parse_urls(self._settings.remotes, self._settings.remotes_source)

    @property
    def max_variants(self) -> int:
        """How many variants the entry may hold."""
        return self._settings.max_variants

    def adopt(self, variants: list[StoredVariant], present: list[StoredVariant]) -> None:
        """Store variants from elsewhere, whose blobs are here, beside those that are present."""
        with self.store.writing():
            whole = [variant for variant in present if self.is_whole(variant)]
            self._write([*whole, *variants])

    def publish(self, result: BuildResult, present: list[StoredVariant]) -> None:
        """Store a build beside the variants that are present."""
        begin = time.perf_counter()
        # Until the manifest names the blobs, only the lock of the store keeps them from being collected.
        with self.store.writing():
            variants = [variant for variant in present if self.is_whole(variant)]
            for built in result.variants:
                gears = []
                for gear, artifact in zip(built.variant.gears, built.artifacts, strict=True):
                    blobs = {name: self.store.put_blob(data) for name, data in artifact.blobs.items()}
                    conditions = list(dict.fromkeys([*gear.conditions, *artifact.conditions]))
                    gears.append(replace(gear, header=artifact.header, blobs=blobs, conditions=conditions))
                variants.append(replace(built.variant, gears=gears))
            size = self._write(variants)
            self._is_counted = True
        self._history.note("publish", seconds=time.perf_counter() - begin, bytes=size)
        place = "in memory" if self.is_in_memory else self.layout.manifest(self.key)
        logger.info("%s: stored %s", self._history.name, place)
        self.store.keep_limits(self.key)

    def impossible_calls(self) -> list[ImpossibleCall]:
        """Return the calls for which builds found no graph; none if that cannot be read."""
        manifest = self.look_up()
        if (
            isinstance(manifest, Reason)
            or not isinstance(records := manifest.payload.get(IMPOSSIBLE, []), list)
            or not records
        ):
            return []
        from gearcache.serving.miss.impossible_call import ImpossibleCall

        try:
            return [ImpossibleCall(**plain) for plain in records]
        except TypeError:  # of an unknown form
            return []

    def note_impossible(self, call: ImpossibleCall) -> bool:
        """Store that no graph can be made for a call; returns whether there is an entry for it. Raises `CacheError`."""
        with self.exclusive(), self.store.writing():
            variants = self.read_again()
            if variants:
                self._write(variants, call)
        return bool(variants) and not self.is_in_memory

    def _write(self, variants: list[StoredVariant], impossible: ImpossibleCall | None = None) -> int:
        """Write the manifest; returns the bytes of the blobs that it names."""
        records = self.impossible_calls()
        if impossible is not None:
            records = [*(record for record in records if record.call != impossible.call), impossible][-MOST_IMPOSSIBLE:]
        sizes = {digest: self.store.blob_size(digest) for variant in variants for digest in blobs_of(variant)}
        payload: dict[str, Any] = {
            "method": self._history.name,
            **entry_to_plain(variants),
            **({IMPOSSIBLE: [asdict(record) for record in records]} if records else {}),
        }
        producer: dict[str, Any] = {
            "torch": str(torch.__version__),
            "variants": len(variants),
            "gears": [gear.text for variant in variants for gear in variant.gears],
            "compile_seconds": round(sum(gear.seconds for variant in variants for gear in variant.gears), 3),
            "folders": self._keeps_files,
        }
        self.store.publish(self.key, payload, sizes, producer)
        return sum(sizes.values())

    def is_whole(self, variant: StoredVariant) -> bool:
        """Whether all blobs of a stored variant exist; False for data of an unknown form."""
        try:
            return all(map(self.store.has_blob, blobs_of(variant)))
        except (AttributeError, TypeError, ValueError):
            return False

    def use_memory(self) -> None:
        """Work without the cache from now on: published variants are in memory, and only this object finds them."""
        from gearcache.cache.memory import MemoryStore

        if not self.is_in_memory:
            self.store = MemoryStore(self.layout, self._settings.lock_timeout)

    def _open_store(self, layout: Layout) -> DiskStore:
        settings = self._settings
        signer = signing_key = None
        if settings.hmac_key_file is not None:
            from gearcache.cache.signatures.signature import Signer

            signer = Signer(settings.hmac_key_file)
        if settings.signing_key_file is not None:
            from gearcache.cache.signatures.key_pair import SigningKey

            signing_key = SigningKey(settings.signing_key_file)
        limits = Limits(settings.max_size, settings.max_age)
        return DiskStore(
            layout, lock_timeout=settings.lock_timeout, signer=signer, signing_key=signing_key, limits=limits
        )


def blobs_of(variant: StoredVariant) -> list[str]:
    """Return the digests of the blobs of a variant."""
    return [digest for gear in variant.gears for digest in gear.blobs.values()]


def _reason_of(miss: Miss, place: tuple[str, int]) -> Reason:
    """Return the store's reason of a miss; a difference to the nearest entry is a reason of its own kind.

    `place` is the file and line of the method.
    """
    text, difference = f"{miss.reason.value}: {miss.detail}", miss.difference
    if difference is None:
        return Reason(miss.reason.value, text)
    subject = f"{difference.component}.{difference.path}" if difference.path else difference.component
    stored, wanted = (
        "missing" if isinstance(value, Missing) else str(value) for value in (difference.stored, difference.wanted)
    )
    if difference.component == "method" and difference.path.startswith("code"):
        text += f"; that is the method's own code, in `{place[0]}`, line {place[1]}"
        return Reason("key", text, subject, stored, wanted, *place)
    return Reason("key", text, subject, stored, wanted)
