"""The entry of a method in the tiers beyond this host: what to fetch instead of compiling, and what to send."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from gearcache.cache.keys.key import Plain
from gearcache.cache.keys.siblings import are_siblings, family_of
from gearcache.cache.remote.fetch import fetch_blobs
from gearcache.cache.remote.lookup import Lookup, TierEntry
from gearcache.cache.remote.names import EntryName, lease_name
from gearcache.cache.remote.outbox import outbox
from gearcache.cache.remote.tier import Tier, open_tiers
from gearcache.cache.remote.trust import Trust
from gearcache.cache.remote.upload import upload_entry
from gearcache.errors import CacheError, CorruptEntry, RemoteError
from gearcache.guards.dispatch.stored.packed_entry import entry_from_plain
from gearcache.guards.dispatch.stored.stored_rows import gears_of_row
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.interrupts import raise_interrupt
from gearcache.readable.joined import covers_manifests
from gearcache.serving.find.entry import Entry, blobs_of
from gearcache.serving.fleet.compile_turn import CompileTurn
from gearcache.telemetry.history import History

logger = logging.getLogger("gearcache")
_NO_KEY = (
    "nothing is sent there, as hosts would refuse it: this host signs nothing (`GEARCACHE_SIGNING_KEY_FILE`); mark the "
    "tier with `?unsigned=1` if all who can write there may run code here, or with `?read_only=1`"
)
_WITHOUT = "%s; the model is served without it (see `gearcache doctor --tiers`; `gearcache push` sends what is missing)"
#: Warnings that this process has logged: one for each tier and kind of fault.
_warned: set[tuple[str, str]] = set()


class Wanted(Struct):
    """What a build needs from the tiers: variants whose evidence holds, above all one that serves the call."""

    is_usable: Callable[[StoredVariant], bool]
    #: Whether a variant is for such a call, as far as that can be decided before it is loaded.
    is_likely: Callable[[StoredVariant], bool]
    #: Loads what is stored by now, and returns whether that serves the call.
    is_served: Callable[[], bool]
    #: Whether a stored variant may be dropped if there is no room for another one.
    is_outdated: Callable[[StoredVariant], bool]
    #: The work text for the lease: equal on all hosts that would compile the same.
    work: str
    #: Variants that are stored here.
    present: list[StoredVariant] = field(default_factory=list)


class RemoteEntry:
    """One entry in all tiers of a method. Not thread-safe: it is used under the lock of the key."""

    def __init__(
        self,
        entry: Entry,
        history: History,
        renew: Callable[[list[StoredVariant]], None],
        *,
        strict: bool,
        lock_timeout: float,
    ) -> None:
        """`renew` is called with fetched variants, so that equal ones that were of no use are tried again."""
        self._renew = renew
        self._entry = entry
        self._history = history
        self._strict = strict
        self._lock_timeout = lock_timeout
        self._name = EntryName(entry.key.safe_label, entry.key.digest, entry.layout.ranks)
        self._trust = Trust.from_environment(os.environ)
        self._tiers = open_tiers(entry.remotes, entry.layout)
        self._lookups = [Lookup(tier, self._name, self._trust) for tier in self._tiers]
        self._sibling_lookups: list[Lookup] | None = None
        self._decoded: dict[str, list[StoredVariant]] = {}
        self._turn: CompileTurn | None = None
        #: Identifies this object and its copies in forked processes.
        self._identity = secrets.token_hex(8)

    def obtain(self, needs: Wanted) -> bool:
        """Fetch variants that serve a call; False if this process has to compile them.

        If a tier has leases, only one of many hosts has to, and the others wait for its result.
        """
        if self._fetch(needs, is_counted=True):
            return True
        tier = next((tier for tier in self._writable if not tier.is_resting), None)
        if tier is None or tier.being_sent[lease_name(self._entry.key.digest, needs.work)]:
            return False
        turn = self._turn_at(tier, needs.work)
        try:
            if turn.wait(lambda: self._fetch(needs)):
                return True
        except CacheError as error:
            self._fault(tier, error)
            return False
        self._turn = turn
        return False

    def fetch(self, needs: Wanted) -> bool:
        """Fetch what the tiers have, without waiting for other hosts; returns whether that serves the call."""
        return self._fetch(needs, is_counted=True)

    def give_up(self) -> None:
        """Let another host compile: this one cannot, or has finished and sent it."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.end()

    def leave(self) -> None:
        """Leave the turn and the upload to the parent process, which calls `take_over`."""
        self._turn = None

    def take_over(self, work: str) -> None:
        """Send what a forked process has stored, and keep the turn that it had at some work."""
        tier = next((tier for tier in self._writable if not tier.is_resting), None)
        if tier is not None:
            self._turn = self._turn_at(tier, work)
            self._turn.resume()
        self.offer()

    def _turn_at(self, tier: Tier, work: str) -> CompileTurn:
        return CompileTurn(tier, self._entry.key.digest, work, self._history, self._lock_timeout, self._identity)

    def offer(self) -> None:
        """Send what is stored here to the tiers, in the background; hosts that wait for it may then fetch it."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.keep_until_sent()

        def end() -> None:
            if turn is not None:
                turn.end()

        def send() -> None:
            try:
                self.send()
            finally:
                end()

        if not outbox().add(send):
            logger.warning(
                "%s: nothing was sent, as too many uploads wait or no thread can be started; `gearcache push` sends it",
                self._history.name,
            )
            end()

    def send(self) -> list[str]:
        """Send what is stored here to all tiers, now; returns the problems."""
        problems = []
        for tier in self._closed_tiers:
            error = CacheError(_NO_KEY)
            problems.append(f"tier {tier.label}: {error}")
            self._warn(tier, error)
        for tier in self._writable:
            if tier.is_resting:
                error = RemoteError(tier.label, "it failed a moment ago, so nothing is sent there now")
                problems.append(str(error))
                self._warn(tier, error)
                continue
            begin = time.perf_counter()
            try:
                upload = upload_entry(tier, self._entry.layout, self._name, self._trust, covers_manifests)
            except CacheError as error:
                problems.append(str(error))
                self._warn(tier, error)
                continue
            seconds = time.perf_counter() - begin
            self._history.note("upload", tier=tier.label, seconds=seconds, bytes=upload.bytes)
            self._history.lines.append(f"sent to {tier.label}: {upload.bytes} bytes")
        return problems

    @property
    def reached(self) -> list[str]:
        """The names of the working tiers that receive what this host compiles."""
        return [tier.label for tier in self._writable if not tier.is_resting]

    @property
    def _writable(self) -> list[Tier]:
        """The tiers that receive what this host compiles."""
        return [tier for tier in self._tiers if not tier.url.read_only and tier not in self._closed_tiers]

    @property
    def _closed_tiers(self) -> list[Tier]:
        """Writable tiers that receive nothing, because hosts would refuse unsigned entries after waiting for them."""
        if self._trust.signs:
            return []
        return [tier for tier in self._tiers if not (tier.url.read_only or tier.url.unsigned)]

    def _fetch(self, needs: Wanted, *, is_counted: bool = False) -> bool:
        """Store here what the tiers have for this host; returns whether that serves the call.

        The first time for a call (`is_counted`) siblings are asked for, too, if the entry itself does not serve.
        """
        if self._fetch_by(self._lookups, needs, is_counted=is_counted):
            return True
        return is_counted and self._fetch_by(self._siblings(), needs, is_counted=False)

    def _siblings(self) -> list[Lookup]:
        """Return lookups of the entries whose keys differ in the module alone."""
        if self._sibling_lookups is None:
            family = family_of(self._entry.key.lowered()) if self._entry.may_have_siblings else ""
            tiers = self._tiers if family else []
            self._sibling_lookups = [Lookup(tier, self._name, self._trust, family=family) for tier in tiers]
        return self._sibling_lookups

    def _fetch_by(self, lookups: Sequence[Lookup], needs: Wanted, *, is_counted: bool) -> bool:
        for lookup in lookups:
            if lookup.tier.is_resting:
                continue
            begin = time.perf_counter()
            try:
                fetched = self._fetch_from(lookup, needs)
            except CacheError as error:
                self._fault(lookup.tier, error)
                continue
            if not fetched:
                if is_counted:
                    lookup.tier.counts.add(misses=1)
                    self._history.lines.append(self._why_nothing(lookup))
                continue
            self._note(lookup, fetched, time.perf_counter() - begin)
            self._renew([variant for variant, _ in fetched])
            if needs.is_served():
                return True
        return False

    def _fetch_from(self, lookup: Lookup, needs: Wanted) -> list[tuple[StoredVariant, int]]:
        """Return the fetched variants, each with the bytes of its fetched blobs."""
        deadline = lookup.tier.begin()
        selected = self._select(lookup.tier, lookup.entries, needs)
        if not any(needs.is_likely(variant) for variant, _ in selected):
            refused_before = set(lookup.refused)
            lookup.look(deadline, lambda manifest: any(map(needs.is_likely, self._usable(manifest, needs))))
            selected = self._select(lookup.tier, lookup.entries, needs)
            for name in lookup.refused.keys() - refused_before:
                self._warn(lookup.tier, lookup.refused[name])
        if not selected:
            return []
        store = self._entry.store
        with store.writing():
            while selected:
                missing: dict[str, int] = {}
                for variant, candidate in selected:
                    sizes = candidate.manifest.blobs
                    missing |= {name: sizes[name] for name in blobs_of(variant) if not self._entry.store.has_blob(name)}
                try:
                    fetch_blobs(lookup.tier, missing, store.put_blob, deadline)
                    break
                except CorruptEntry as error:  # another host may have sent the same variant with its own blobs
                    if lookup.tier.damaged.isdisjoint(missing):
                        raise
                    self._warn(lookup.tier, error)
                    selected = self._select(lookup.tier, lookup.entries, needs)
            if not selected:
                return []
            present = self._present_to_keep(needs, len(selected))
            self._entry.adopt([variant for variant, _ in selected], present)
        store.keep_limits(self._entry.key)
        needs.present = [*present, *(variant for variant, _ in selected)]
        fetched = []
        for variant, _ in selected:
            fetched.append((variant, sum(missing.pop(digest, 0) for digest in blobs_of(variant))))
        return fetched

    def _select(
        self, tier: Tier, candidates: dict[str, TierEntry], needs: Wanted
    ) -> list[tuple[StoredVariant, TierEntry]]:
        """Return the variants to fetch, those that serve the call first, and no more than the entry may hold.

        Of a variant that several hosts have compiled only the first is fetched, and none with a damaged blob.
        """
        held_gears = {gear for variant in needs.present if self._entry.is_whole(variant) for gear in _gears(variant)}
        selected: list[tuple[StoredVariant, TierEntry]] = []
        for candidate in candidates.values():
            for variant in self._usable(candidate, needs):
                missing = [digest for digest in blobs_of(variant) if not self._entry.store.has_blob(digest)]
                gears = _gears(variant)
                if not tier.damaged.isdisjoint(missing) or gears <= held_gears:
                    continue
                held_gears |= gears
                selected.append((variant, candidate))
        selected.sort(key=lambda item: not needs.is_likely(item[0]))
        most = self._entry.max_variants
        return selected[: max(0, most - len(self._present_to_keep(needs, most)))]

    def _present_to_keep(self, needs: Wanted, others: int) -> list[StoredVariant]:
        """Return the present variants to keep beside others: those that have room, or that may not be dropped."""
        excess = len(needs.present) + others - self._entry.max_variants
        if excess <= 0:
            return needs.present
        dropped = [variant for variant in needs.present if needs.is_outdated(variant)][:excess]
        return [variant for variant in needs.present if all(variant is not outdated for outdated in dropped)]

    def _usable(self, candidate: TierEntry, needs: Wanted) -> list[StoredVariant]:
        """Return the variants of a manifest that this host may use; none if it has an unknown form."""
        if candidate.name not in self._decoded or candidate.name.endswith("/manifest.msgpack"):
            try:
                variants = entry_from_plain(candidate.manifest.payload)
                sizes = candidate.manifest.blobs
                is_whole = all(digest in sizes for variant in variants for digest in blobs_of(variant))
                if candidate.manifest.key_digest != self._name.digest:
                    variants = self._of_sibling(variants, candidate.manifest.components)
                self._decoded[candidate.name] = variants if is_whole else []
            except Exception as error:  # data of an unknown form raises anything
                raise_interrupt(error)
                self._warn(
                    candidate.tier,
                    CacheError(f"`{candidate.name}` cannot be read: {type(error).__name__}: {error}"),
                )
                self._decoded[candidate.name] = []
        return [variant for variant in self._decoded[candidate.name] if needs.is_usable(variant)]

    def _of_sibling(self, variants: list[StoredVariant], components: Mapping[str, Plain]) -> list[StoredVariant]:
        if not are_siblings(self._entry.key.lowered(), components):  # its name says so, which nobody has verified
            return []
        return list(self._entry.of_sibling(variants, components))

    def _why_nothing(self, lookup: Lookup) -> str:
        """Return why a tier has nothing useful."""
        if not lookup.entries:
            return f"{lookup.tier.label} has no entry of this key" + (" that may be used" if lookup.refused else "")
        return f"{lookup.tier.label} has an entry of this key, and no trace in it is for this call and this code"

    def _note(self, lookup: Lookup, fetched: list[tuple[StoredVariant, int]], seconds: float) -> None:
        gears = [gear for variant, _ in fetched for gear in variant.gears]
        size = sum(blob_bytes for _, blob_bytes in fetched)
        saved = sum(gear.seconds for gear in gears)
        texts = tuple(gear.text for gear in gears)
        tier = lookup.tier
        tier.counts.add(hits=1, bytes_fetched=size, seconds_saved=saved)
        self._history.note("fetch", tier=tier.label, gears=texts, seconds=seconds, bytes=size)
        note = ", of a module that differs only where the method does not reach" if lookup.family else ""
        self._history.lines.append(f"fetched from {tier.label}{note}: {', '.join(texts)}")
        logger.info("%s: fetched %d gears from %s in %.2f s", self._history.name, len(texts), tier.label, seconds)

    def _fault(self, tier: Tier, error: CacheError) -> None:
        """Handle a fault of a tier: it never breaks a call, unless `strict`; it is counted, and logged once."""
        if self._strict:
            raise error
        self._warn(tier, error)

    def _warn(self, tier: Tier, error: CacheError) -> None:
        text = str(error) if isinstance(error, RemoteError) else f"tier {tier.label}: {error}"
        self._history.note("fault", tier=tier.label, detail=str(error))
        if text not in self._history.lines:
            self._history.lines.append(text)
        kind = type(error).__name__ if not isinstance(error, RemoteError) else ""
        if (tier.label, kind) not in _warned:
            _warned.add((tier.label, kind))
            logger.warning(_WITHOUT, text)


def _gears(variant: StoredVariant) -> frozenset[bytes]:
    """Return digests that identify the gears of a variant, independent of the host that compiled them."""
    return frozenset(gears_of_row(variant.to_plain()))
