"""Look up one entry in a tier, or its siblings: the manifests that several hosts have stored, each read once."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from msgspec import Struct

from gearcache.cache.layout import MANIFEST_NAME
from gearcache.cache.manifest import Manifest, decode_manifest
from gearcache.cache.remote.engines.protocol import Deadline, Remote, RemoteError
from gearcache.cache.remote.names import EntryName, expected_digest
from gearcache.cache.remote.requests.parallel import MOST_AT_ONCE, read_each
from gearcache.cache.remote.tier import Tier
from gearcache.cache.remote.trust import Trust
from gearcache.errors import CacheError, CorruptEntry

#: Limit of names that one lookup lists, and of bytes of a manifest in a tier.
MOST_MANIFESTS = 1024
#: The same of a lookup of siblings, which lists all entries of the method, and how many of them it reads.
MOST_NAMES = 1 << 12
MOST_SIBLINGS = 64
MAX_SIZE = 64 << 20
#: Limit of bytes of a blob in a tier: it is held in memory until it is verified.
MAX_BLOB_SIZE = 4 << 30


class TierEntry(Struct, frozen=True):
    """A usable manifest, its place, and its signer."""

    tier: Tier
    name: str
    manifest: Manifest
    signer: str
    #: Its bytes, where the caller keeps them.
    data: bytes = b""


class Lookup:
    """The manifests of one entry in one tier, or those of its siblings of a family. Not thread safe."""

    def __init__(self, tier: Tier, entry: EntryName, trust: Trust, *, family: str = "") -> None:
        self.tier = tier
        self.entries: dict[str, TierEntry] = {}
        #: Errors of refused manifests, by name.
        self.refused: dict[str, CacheError] = {}
        self._entry = entry
        self._trust = trust
        #: The family whose siblings are looked up; empty for the entry itself.
        self.family = family

    def look(self, deadline: Deadline, is_enough: Callable[[TierEntry], bool] = lambda _: False) -> list[TierEntry]:
        """Return the manifests that were not read before, until one of them is enough. Raises `RemoteError`."""
        if self.family:  # the list of a whole method: that it takes too long is not a fault of the tier
            return self._look(self.tier.remote, deadline, is_enough)
        return self.tier.ask(lambda remote: self._look(remote, deadline, is_enough))

    def _look(self, remote: Remote, deadline: Deadline, is_enough: Callable[[TierEntry], bool]) -> list[TierEntry]:
        names = self._names(remote, deadline)
        new_names = [name for name in names if name.endswith(MANIFEST_NAME) or not self._is_known(name)]
        candidates: list[TierEntry] = []
        for start in range(0, len(new_names), MOST_AT_ONCE):
            read, faults = read_each(remote, new_names[start : start + MOST_AT_ONCE], MAX_SIZE, deadline)
            self.refused |= faults
            for name, data in read.items():  # a manifest removed meanwhile was pruned
                if (candidate := self._check(name, data)) is not None:
                    candidates.append(candidate)
            if any(map(is_enough, candidates)):
                break
        return candidates

    def _names(self, remote: Remote, deadline: Deadline) -> list[str]:
        entry, family = self._entry, self.family
        if not family:
            return [name for name in remote.names(entry.prefix, MOST_MANIFESTS, deadline) if entry.has(name)]
        names = remote.names(entry.method_prefix, MOST_NAMES, deadline)
        return [name for name in names if entry.sibling(name, family) is not None][:MOST_SIBLINGS]

    def _is_known(self, name: str) -> bool:
        """Return whether a manifest need not be read again; an unreadable one may become readable."""
        error = self.refused.get(name)
        return name in self.entries or (error is not None and not isinstance(error, RemoteError))

    def _check(self, name: str, data: bytes) -> TierEntry | None:
        entry = self._entry.sibling(name, self.family) or self._entry
        try:
            candidate = read_tier_entry(self.tier, entry, name, data, self._trust)
        except CacheError as error:
            self.refused[name] = error
            return None
        previous = self.entries.get(name)
        if previous is not None and previous.manifest == candidate.manifest:
            return None
        self.entries[name] = candidate
        return candidate


def read_named(tier: Tier, entry: EntryName, name: str, data: bytes) -> Manifest:
    """Return a manifest from a tier, regardless of its signer; `CorruptEntry` where it belongs to another entry."""
    source = tier.path(name)
    digest = sha256(data).hexdigest()
    if expected_digest(name) not in (None, digest):
        raise CorruptEntry(source, f"its {len(data)} bytes have the sha256 {digest}")
    manifest = decode_manifest(data, source)
    if (manifest.key_digest, manifest.name) != (entry.digest, f"{entry.label}-{entry.digest}"):
        raise CorruptEntry(source, f"it belongs to the entry {manifest.name}")
    if any(size > MAX_BLOB_SIZE for size in manifest.blobs.values()):
        raise CorruptEntry(source, f"it names a blob of more than {MAX_BLOB_SIZE} bytes")
    return manifest


def read_tier_entry(tier: Tier, entry: EntryName, name: str, data: bytes, trust: Trust) -> TierEntry:
    """Return a manifest from a tier; `CorruptEntry` or `UnsignedEntry` where it may not be used."""
    manifest = read_named(tier, entry, name, data)
    signer = trust.check(data, str(tier.path(name)), unsigned=tier.url.unsigned)
    return TierEntry(tier, name, manifest, signer)
