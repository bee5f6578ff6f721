"""Pull entries from tiers into the cache of this host: manifests from several hosts become one entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from gearcache.cache.admin.joining import LOCK_SECONDS, Join, is_here, join_entry, own_entry
from gearcache.cache.admin.row import Identity
from gearcache.cache.blob_folder import prepare_folder
from gearcache.cache.keys.siblings import family_of
from gearcache.cache.layout import Layout
from gearcache.cache.locks.lock import key_lock
from gearcache.cache.manifest import Manifest
from gearcache.cache.remote.admin.holdings import MOST_FAULTS, SECONDS, read_manifests
from gearcache.cache.remote.admin.push import name_of
from gearcache.cache.remote.engines.protocol import RemoteError
from gearcache.cache.remote.fetch import fetch_blobs
from gearcache.cache.remote.lookup import TierEntry, read_tier_entry
from gearcache.cache.remote.names import EntryName, expected_digest
from gearcache.cache.remote.tier import Tier
from gearcache.cache.remote.trust import Trust
from gearcache.cache.store import DiskStore
from gearcache.errors import CacheError

_Result = TypeVar("_Result")


class Pulled(Struct):
    """Results by entry name; `failed` and `refused` say why. `bytes` counts blobs."""

    brought: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    #: Manifests that may not be used, by their names in messages.
    refused: dict[str, str] = field(default_factory=dict)
    #: Number of traces of the entries now, where the entries state it.
    traces: dict[str, int] = field(default_factory=dict)
    blobs: int = 0
    bytes: int = 0


class Pull:
    """One pull. Every byte is verified before it is stored, signatures as `trust` requires."""

    def __init__(self, layout: Layout, trust: Trust, join: Join) -> None:
        self.outcome = Pulled()
        self._layout = Layout(layout.root)
        self._store = DiskStore(self._layout)
        self._trust = trust
        self._join = join
        #: Consecutive faults by tier.
        self._faults: Counter[Tier] = Counter()

    def bring(self, entry: EntryName, tier_names: Sequence[tuple[Tier, Sequence[str]]]) -> None:
        """Bring one entry here from the named manifests in tiers; raises no error of the cache."""
        name = name_of(entry)
        try:
            state = self._bring(entry, tier_names)
        except CacheError as error:
            self.outcome.failed[name] = str(error)
            return
        if state is not None:
            (self.outcome.brought if state else self.outcome.present).append(name)

    def _bring(self, entry: EntryName, tier_names: Sequence[tuple[Tier, Sequence[str]]]) -> bool | None:
        """Return whether anything was added; None where the entry could not be brought, which is reported."""
        name = name_of(entry)
        own_manifest, own_name = self._own_manifest(entry)
        candidates, problems = self._candidates(
            entry, [(tier, [n for n in names if n != own_name]) for tier, names in tier_names]
        )
        if not candidates:
            if own_manifest is None and not problems:
                problems = ["none of its manifests may be used"]
            if problems:
                self.outcome.failed[name] = "; ".join(problems)
            return None if problems else False
        manifests = [each.manifest for each in candidates]
        lock = self._layout.lock(f"{entry.label}-{entry.digest}")
        prepare_folder(self._layout, lock.parent)
        # Until the manifest names them, only the lock of the store protects blobs from being collected.
        with key_lock(lock, LOCK_SECONDS), self._store.writing():
            has_come, losses = self._fetch_of(own_manifest, candidates)
            offers = [(each.manifest, each.data) for each in candidates]
            manifest, is_new = join_entry(self._layout, _identity(entry), offers, self._trust, self._join)
            if losses and self._join(manifest, manifests, lambda *_: True) is not None:
                problems += losses  # otherwise another host's copies replaced the lost ones
        if manifest is not None and isinstance(traces := manifest.producer.get("variants"), int):
            self.outcome.traces[name] = traces
        if problems:
            self.outcome.failed[name] = "; ".join(dict.fromkeys(problems))
        if is_new or (own_manifest is not None and has_come):
            return True
        return None if problems else False

    def _fetch_of(self, own_manifest: Manifest | None, candidates: Sequence[TierEntry]) -> tuple[bool, list[str]]:
        """Bring the blobs that the joined entry needs; returns whether any arrived, and why others did not.

        Of a gear that several hosts have compiled, the blobs of one host are enough: where they are lost, another
        host's are used.
        """
        manifests = [each.manifest for each in candidates]
        offered_sizes = {digest: size for manifest in manifests for digest, size in manifest.blobs.items()}
        has_come, lost_digests, problems = False, set[str](), list[str]()

        def may_be_had(digest: str, size: int) -> bool:
            return is_here(self._layout, digest, size) or (digest in offered_sizes and digest not in lost_digests)

        while True:
            joined_manifest = self._join(own_manifest, manifests, may_be_had)
            sizes = (joined_manifest or own_manifest or manifests[0]).blobs
            missing = self._lacking(
                {
                    digest: size
                    for digest, size in sizes.items()
                    if digest in offered_sizes and digest not in lost_digests
                }
            )
            problems += self._fetch(missing, candidates)
            absent = self._lacking(missing).keys()
            has_come |= bool(missing.keys() - absent)
            if not absent:
                return has_come, problems
            lost_digests |= absent

    def _own_manifest(self, entry: EntryName) -> tuple[Manifest | None, str]:
        """Return the usable manifest of this host, and its name in a tier if it is whole."""
        manifest, data = own_entry(self._layout, _identity(entry), self._trust.hmac)
        if manifest is None or self._lacking(manifest.blobs):
            return manifest, ""
        return manifest, entry.manifest(data, family_of(manifest.components))

    def _candidates(
        self, entry: EntryName, tier_names: Sequence[tuple[Tier, Sequence[str]]]
    ) -> tuple[list[TierEntry], list[str]]:
        """Return the usable manifests, and why tiers failed to give theirs."""
        candidates: list[TierEntry] = []
        problems: list[str] = []
        data_by_name: dict[str, bytes] = {}
        for tier, names in tier_names:
            new_names = [name for name in names if name not in data_by_name]
            try:
                read, faults = self._ask(tier, lambda tier=tier, new_names=new_names: read_manifests(tier, new_names))  # type: ignore[misc]
            except CacheError as error:
                problems.append(str(error))
                continue
            problems += map(str, faults.values())
            at_hand = {name: data_by_name[name] for name in names if name in data_by_name} | read
            # The name of a manifest contains its digest; that of a copied cache does not.
            data_by_name |= {name: data for name, data in read.items() if expected_digest(name) is not None}
            for name, data in at_hand.items():
                try:
                    candidate = read_tier_entry(tier, entry, name, data, self._trust)
                    candidates.append(replace(candidate, data=self._trust.signed(data)))
                except CacheError as error:
                    self.outcome.refused[str(tier.path(name))] = str(error)
        return candidates, problems

    def _fetch(self, missing: dict[str, int], candidates: Iterable[TierEntry]) -> list[str]:
        """Bring blobs from any tier that has them; returns the errors of blobs that did not arrive."""
        faults: dict[str, str] = {}
        by_tier: dict[Tier, dict[str, int]] = {}
        for each in candidates:
            by_tier.setdefault(each.tier, {}).update(each.manifest.blobs)
        for tier, offered in by_tier.items():
            sizes = self._lacking({digest: size for digest, size in missing.items() if digest in offered})
            if not sizes:
                continue
            try:
                self._ask(tier, lambda tier=tier, sizes=sizes: self._fetch_from(tier, sizes))  # type: ignore[misc]
            except CacheError as error:
                faults |= dict.fromkeys(sizes, str(error))
            new_digests = sizes.keys() - self._lacking(sizes).keys()
            size = sum(sizes[digest] for digest in new_digests)
            self.outcome.blobs += len(new_digests)
            self.outcome.bytes += size
            if new_digests:
                tier.counts.add(hits=1, bytes_fetched=size)
        problems = []
        for digest in self._lacking(missing):
            sources = [tier.label for tier, offered in by_tier.items() if digest in offered]
            why = f": {faults[digest]}" if digest in faults else ""
            problems.append(f"the blob {digest[:12]} did not come from {' or '.join(sources) or 'any tier'}{why}")
        return problems

    def _ask(self, tier: Tier, work: Callable[[], _Result]) -> _Result:
        """Return the result of `work` with a tier; `RemoteError`, at once where the tier keeps failing."""
        if self._faults[tier] >= MOST_FAULTS:
            raise RemoteError(tier.label, "not asked, as it failed again and again")
        try:
            result = work()
        except RemoteError:
            self._faults[tier] += 1
            raise
        self._faults[tier] = 0
        return result

    def _fetch_from(self, tier: Tier, sizes: dict[str, int]) -> None:
        missing = self._lacking(sizes)
        fetch_blobs(tier, missing, self._store.put_blob, tier.begin(sum(missing.values()), SECONDS))

    def _lacking(self, sizes: dict[str, int]) -> dict[str, int]:
        return {digest: size for digest, size in sizes.items() if not is_here(self._layout, digest, size)}


def _identity(entry: EntryName) -> Identity:
    return entry.label, entry.digest, entry.ranks
