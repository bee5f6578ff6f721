"""Prune a tier: old manifests, and blobs that no manifest names.

Only understood objects are removed: an unreadable manifest stays. The blobs that it names are unknown, so all blobs
stay then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct, field

from gearcache.cache.manifest import Manifest
from gearcache.cache.remote.admin.holdings import SECONDS, blobs, holdings, read_manifests, write_index
from gearcache.cache.remote.engines.folder import FolderRemote
from gearcache.cache.remote.engines.protocol import Deadline, Remote
from gearcache.cache.remote.lookup import read_named
from gearcache.cache.remote.names import TOP, blob_name
from gearcache.cache.remote.requests.parallel import at_once
from gearcache.cache.remote.tier import Tier
from gearcache.errors import CacheError, RemoteError

#: Seconds between two scans of a tier: an uploader stores blobs first and then the manifest that names them.
GRACE_SECONDS = 60.0
#: Unfinished files of a folder this old have no writer any more, whatever the clocks of hosts show.
UNFINISHED_SECONDS = 86_400.0


class RemotePruned(Struct):
    """Names of the manifests and digests of the blobs that were removed, or would be. `freed` is in bytes."""

    tier: str
    old: list[str] = field(default_factory=list)
    #: Manifests stored during the prune whose blobs were removed by then, and not sent again since.
    late: list[str] = field(default_factory=list)
    blobs: list[str] = field(default_factory=list)
    #: Number of files of a folder that uploaders were writing when they ended.
    unfinished: int = 0
    freed: int = 0
    #: Manifests that cannot be read, by name, with the reason.
    unread: dict[str, str] = field(default_factory=dict)
    left: int = 0


class _Stored(Struct, frozen=True):
    name: str
    manifest: Manifest
    size: int


class RemotePrune:
    """One prune of a tier; `RemoteError` where the tier fails or is read only."""

    def __init__(
        self,
        tier: Tier,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.outcome = RemotePruned(tier.label)
        self._tier = tier
        self._clock = clock
        self._sleep = sleep
        self._manifests: dict[str, _Stored] = {}
        self._indexes: list[str] = []

    def run(self, max_age: float | None, grace: float, *, dry_run: bool) -> RemotePruned:
        """Remove manifests that were made more than `max_age` seconds ago, and objects that nothing needs."""
        if self._tier.url.read_only:
            raise RemoteError(self._tier.label, "it is read only")
        outcome = self.outcome
        stored = self._stored()
        before = None if max_age is None else self._clock() - max_age
        old_manifests = [each for each in stored if before is not None and each.manifest.created < before]
        outcome.old = [each.name for each in old_manifests]
        remaining = [each for each in stored if each.name not in set(outcome.old)]
        outcome.left = len(remaining)
        present_digests = set(blobs(self._tier, Deadline.after(SECONDS)))
        needed_digests = {digest for each in remaining for digest in each.manifest.blobs}
        unneeded_digests = sorted(present_digests - needed_digests) if not outcome.unread else []
        if not dry_run:
            self._delete(sorted(outcome.old))
            if unneeded_digests:
                self._sleep(grace)
                unneeded_digests = self._still_unneeded(unneeded_digests)
        sizes = self._sizes(unneeded_digests)
        outcome.blobs = sorted(sizes)
        outcome.freed = sum(sizes.values()) + sum(each.size for each in old_manifests)
        if not dry_run:
            self._delete([blob_name(digest) for digest in outcome.blobs])
            self._remove_late()
            if self._indexes:
                write_index(self._tier)
        outcome.unfinished = self._sweep(dry_run=dry_run)
        return outcome

    def _stored(self) -> list[_Stored]:
        """Return the manifests that exist now and can be read; each is read once."""
        contents = holdings(self._tier, Deadline.after(SECONDS))
        self._indexes = contents.indexes
        entry_by_name = {name: entry for entry, names in contents.manifests.items() for name in names}
        self._manifests = {name: each for name, each in self._manifests.items() if name in entry_by_name}
        unread_names = [name for name in entry_by_name if name not in self._manifests]
        read, faults = read_manifests(self._tier, unread_names)
        self.outcome.unread = {name: str(error) for name, error in faults.items()}
        for name, data in read.items():
            try:
                manifest = read_named(self._tier, entry_by_name[name], name, data)
            except CacheError as error:
                self.outcome.unread[name] = str(error)
                continue
            self._manifests[name] = _Stored(name, manifest, len(data))
        return list(self._manifests.values())

    def _still_unneeded(self, digests: Iterable[str]) -> list[str]:
        needed_digests = {digest for each in self._stored() for digest in each.manifest.blobs}
        return [] if self.outcome.unread else [digest for digest in digests if digest not in needed_digests]

    def _remove_late(self) -> None:
        """Remove manifests stored while their blobs were removed: a host would assume that they are whole.

        An uploader that has stored its manifest sends the blobs again that it misses; such an entry is whole.
        """
        if removed_digests := set(self.outcome.blobs):
            needed = {each.name: removed_digests & each.manifest.blobs.keys() for each in self._stored()}
            present_digests = self._sizes(sorted(set().union(*needed.values()))).keys()
            self.outcome.late = [name for name, digests in needed.items() if digests - present_digests]
            self._delete(self.outcome.late)

    def _sweep(self, *, dry_run: bool) -> int:
        engine = self._tier.url.open()
        if not isinstance(engine, FolderRemote):
            return 0  # others never show an unfinished object
        deadline = Deadline.after(SECONDS)
        return self._tier.write(lambda _: engine.sweep(TOP, UNFINISHED_SECONDS, deadline, dry_run=dry_run))

    def _sizes(self, digests: Sequence[str]) -> dict[str, int]:
        def size(remote: Remote, digest: str) -> tuple[str, int | None]:
            return digest, remote.size(blob_name(digest), deadline)

        deadline = Deadline.after(SECONDS + len(digests))
        pairs = self._tier.ask(lambda remote: at_once(lambda digest: size(remote, digest), digests))
        return {digest: number for digest, number in pairs if number is not None}

    def _delete(self, names: Sequence[str]) -> None:
        deadline = Deadline.after(SECONDS + len(names))
        if names:
            self._tier.write(lambda remote: at_once(lambda name: remote.delete(name, deadline), names))
