"""Upload an entry to a tier: its missing blobs first, then the manifest that names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from msgspec import Struct

from gearcache.cache.keys.siblings import family_of
from gearcache.cache.layout import MANIFEST_NAME, USE_NAME, Layout
from gearcache.cache.locks.use import register_use
from gearcache.cache.manifest import Manifest, read_manifest_to_copy
from gearcache.cache.remote.engines.protocol import Deadline, Remote
from gearcache.cache.remote.lookup import Lookup
from gearcache.cache.remote.names import EntryName, blob_name
from gearcache.cache.remote.requests.parallel import at_once
from gearcache.cache.remote.tier import Tier
from gearcache.cache.remote.trust import Trust
from gearcache.cache.store import DiskStore
from gearcache.errors import UnsignedEntry

#: An upload may take at least this long.
_SECONDS = 30.0


class Uploaded(Struct, frozen=True):
    """The sent objects; empty where the tier has the whole entry."""

    manifest: bool = False
    blobs: int = 0
    bytes: int = 0


def upload_entry(
    tier: Tier,
    layout: Layout,
    entry: EntryName,
    trust: Trust,
    covers: Callable[[Sequence[Manifest], Manifest], bool] = lambda others, own: False,
) -> Uploaded:
    """Store an entry of the cache in a tier, signed as this host signs; `RemoteError`, or another `CacheError`.

    `covers` decides whether the tier's manifests already hold everything in the entry's own. The entry stays in use
    meanwhile; every byte is verified before it is sent.
    """
    folder = layout.entry(entry.label, entry.digest, entry.ranks)
    with ExitStack() as stack:
        use = register_use(folder / USE_NAME)
        if use is not None:
            stack.callback(use.close)
        data, manifest = read_manifest_to_copy(folder / MANIFEST_NAME)
        data = trust.own_signed(data)
        size = sum(manifest.blobs.values())
        deadline = tier.begin(size, _SECONDS)
        lookup = Lookup(tier, entry, trust)
        lookup.look(tier.begin(), lambda candidate: covers([candidate.manifest], manifest))
        name = entry.manifest(data, family_of(manifest.components))
        # A manifest refused because of its signature is stored there as well, byte for byte.
        is_there = name in lookup.entries or isinstance(lookup.refused.get(name), UnsignedEntry)
        others = [candidate.manifest for candidate in lookup.entries.values()]
        if is_there or covers(others, manifest):
            whole_manifests = tier.ask(lambda remote: _whole(tier, remote, [*others, manifest], deadline))
            if covers(whole_manifests, manifest) or (is_there and manifest in whole_manifests):
                return Uploaded()
        upload = tier.write(lambda remote: _send(tier, remote, DiskStore(layout), name, data, manifest, deadline))
    tier.counts.add(uploads=1, bytes_uploaded=upload.bytes)
    return upload


def _send(
    tier: Tier,
    remote: Remote,
    store: DiskStore,
    name: str,
    data: bytes,
    manifest: Manifest,
    deadline: Deadline,
) -> Uploaded:
    sent_sizes: dict[str, int] = {}

    def send(item: tuple[str, int]) -> None:
        digest, size = item
        if _is_there(tier, remote, digest, size, deadline):
            return
        remote.put(blob_name(digest), store.read_blob(digest), deadline)
        tier.damaged.discard(digest)
        sent_sizes[digest] = size

    items = sorted(manifest.blobs.items())
    at_once(send, items)
    # Last: a host that sees the manifest finds its blobs.
    remote.put(name, data, deadline)
    # A prune may have removed unreferenced blobs meanwhile, including those that were just sent.
    at_once(send, items)
    return Uploaded(True, len(sent_sizes), sum(sent_sizes.values()) + len(data))


def _whole(tier: Tier, remote: Remote, manifests: Sequence[Manifest], deadline: Deadline) -> list[Manifest]:
    """Return the manifests whose blobs are all there."""
    sizes = {digest: size for manifest in manifests for digest, size in manifest.blobs.items()}
    answers = at_once(lambda item: (item[0], _is_there(tier, remote, *item, deadline)), sorted(sizes.items()))
    present_digests = {digest for digest, is_there in answers if is_there}
    return [manifest for manifest in manifests if manifest.blobs.keys() <= present_digests]


def _is_there(tier: Tier, remote: Remote, digest: str, size: int, deadline: Deadline) -> bool:
    return digest not in tier.damaged and remote.size(blob_name(digest), deadline) == size
