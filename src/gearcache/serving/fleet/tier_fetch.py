"""Fetch variants of an entry from the tiers: first those that serve the call, then others that this host may use."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from gearcache.cache.keys.key import Plain
from gearcache.cache.keys.siblings import are_siblings, family_of
from gearcache.cache.remote.engines.protocol import Deadline
from gearcache.cache.remote.fetch import fetch_blobs
from gearcache.cache.remote.lookup import Lookup, TierEntry
from gearcache.cache.remote.names import EntryName
from gearcache.cache.remote.tier import Tier
from gearcache.cache.remote.trust import Trust
from gearcache.errors import CacheError, CorruptEntry, RemoteError
from gearcache.guards.dispatch.stored.packed_entry import entry_from_plain
from gearcache.guards.dispatch.stored.stored_rows import gears_of_row
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.interrupts import raise_interrupt
from gearcache.serving.find.entry import Entry, blobs_of
from gearcache.serving.find.sibling_entries import reaching_the_same
from gearcache.serving.fleet.tier_faults import TierFaults
from gearcache.telemetry.history import History

logger = logging.getLogger("gearcache")


class Wanted(Struct):
    """What a build needs from the tiers: variants whose evidence holds, above all one that serves the call."""

    is_usable: Callable[[StoredVariant], bool]
    #: Whether a variant is for such a call, as far as that can be decided before it is loaded.
    is_likely: Callable[[StoredVariant], bool]
    #: Loads what was fetched and is stored by now, and returns whether that serves the call.
    is_served_by: Callable[[list[StoredVariant]], bool]
    #: Whether a stored variant may be dropped if there is no room for another one.
    is_outdated: Callable[[StoredVariant], bool]
    #: The work text for the lease: equal on all hosts that would compile the same.
    work: str
    #: Variants that are stored here.
    present: list[StoredVariant] = field(default_factory=list)


class TierFetch:
    """What this host fetches of one entry. Not thread-safe: it is used under the lock of the key."""

    def __init__(
        self,
        entry: Entry,
        name: EntryName,
        tiers: Sequence[Tier],
        trust: Trust,
        history: History,
        faults: TierFaults,
    ) -> None:
        self._entry = entry
        self._name = name
        self._tiers = tiers
        self._trust = trust
        self._history = history
        self._faults = faults
        self._lookups = [Lookup(tier, name, trust) for tier in tiers]
        self._sibling_lookups: list[Lookup] | None = None
        self._decoded: dict[str, list[StoredVariant]] = {}

    def fetch(self, needs: Wanted, *, is_counted: bool = False) -> bool:
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
                if lookup.family and isinstance(error, RemoteError):  # its list takes as long each time
                    self._sibling_lookups = [each for each in self._siblings() if each is not lookup]
                self._faults.handle(lookup.tier, error)
                continue
            if not fetched:
                if is_counted:
                    lookup.tier.counts.add(misses=1)
                    self._history.lines.append(self._why_nothing(lookup))
                continue
            self._note(lookup, fetched, time.perf_counter() - begin)
            if needs.is_served_by([variant for variant, _ in fetched]):
                return True
        return False

    def _fetch_from(self, lookup: Lookup, needs: Wanted) -> list[tuple[StoredVariant, int]]:
        """Return the fetched variants, each with the bytes of its fetched blobs.

        Those that serve the call come first, and may take as long as their bytes need. The others have the rest of the
        budget: without them the call is served as well.
        """
        deadline = lookup.tier.begin()
        damaged: set[str] = set()
        selected = self._select(lookup.entries, needs, damaged)
        if not any(needs.is_likely(variant) for variant, _ in selected):
            refused_before = set(lookup.refused)
            lookup.look(deadline, lambda manifest: any(map(needs.is_likely, self._usable(manifest, needs))))
            for name in lookup.refused.keys() - refused_before:
                self._faults.warn(lookup.tier, lookup.refused[name])
        fetched = self._bring(lookup, needs, damaged)
        try:
            fetched += self._bring(lookup, needs, damaged, deadline) if deadline.left else []
        except CacheError as error:
            self._faults.warn(lookup.tier, error)
        if fetched:
            self._entry.store.keep_limits(self._entry.key)
        return fetched

    def _bring(
        self, lookup: Lookup, needs: Wanted, damaged: set[str], deadline: Deadline | None = None
    ) -> list[tuple[StoredVariant, int]]:
        """Store variants that serve the call here, or, until a deadline, all that are usable; adds to `damaged`."""
        store, tier = self._entry.store, lookup.tier
        with store.writing():
            while True:
                selected = self._select(lookup.entries, needs, damaged)
                if deadline is None:
                    selected = [item for item in selected if needs.is_likely(item[0])]
                if not selected:
                    return []
                missing: dict[str, int] = {}
                for variant, candidate in selected:
                    sizes = candidate.manifest.blobs
                    missing |= {name: sizes[name] for name in blobs_of(variant) if not store.has_blob(name)}
                try:
                    until = deadline or tier.begin(sum(missing.values()))
                    fetch_blobs(tier, missing, store.put_blob, until, is_needed=deadline is None)
                    break
                except CorruptEntry as error:  # another host may have sent the same variant with its own blobs
                    if tier.damaged.isdisjoint(missing):
                        raise
                    damaged |= tier.damaged & missing.keys()
                    self._faults.warn(tier, error)
            variants = [variant for variant, _ in selected]
            present = self._present_to_keep(needs, len(variants))
            self._entry.adopt(variants, present)
        needs.present = [*present, *variants]
        return [(variant, sum(missing.pop(digest, 0) for digest in blobs_of(variant))) for variant in variants]

    def _select(
        self, candidates: dict[str, TierEntry], needs: Wanted, damaged: set[str]
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
                if not damaged.isdisjoint(missing) or gears <= held_gears:
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
                self._faults.warn(
                    candidate.tier,
                    CacheError(f"`{candidate.name}` cannot be read: {type(error).__name__}: {error}"),
                )
                self._decoded[candidate.name] = []
        return [variant for variant in self._decoded[candidate.name] if needs.is_usable(variant)]

    def _of_sibling(self, variants: list[StoredVariant], components: Mapping[str, Plain]) -> list[StoredVariant]:
        if not are_siblings(self._entry.key.lowered(), components):  # its name says so, which nobody has verified
            return []
        return list(reaching_the_same(self._entry, variants, components))

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


def _gears(variant: StoredVariant) -> frozenset[bytes]:
    """Return digests that identify the gears of a variant, independent of the host that compiled them."""
    return frozenset(gears_of_row(variant.to_plain()))
