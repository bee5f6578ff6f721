"""Fetch blobs from a tier: several at once, each verified before use."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from hashlib import sha256

from gearcache.cache.remote.engines.protocol import Deadline, Remote, TooLarge
from gearcache.cache.remote.names import blob_name
from gearcache.cache.remote.requests.parallel import at_once
from gearcache.cache.remote.tier import Tier
from gearcache.errors import CorruptEntry

#: A share may report a present file as absent: it is asked again after these seconds.
_AGAIN_SECONDS = (0.2, 1.0)


def fetch_blobs(
    tier: Tier,
    sizes: Mapping[str, int],
    take: Callable[[bytes], object],
    deadline: Deadline,
    *,
    is_needed: bool = True,
) -> int:
    """Hand the bytes of each blob, verified, to `take`; return the number of bytes.

    `RemoteError` where a blob is late, `CorruptEntry` where a blob is missing or does not match its name; the tier
    remembers both as damaged, until they arrive whole. Blobs that arrived before are kept. That blobs come too late
    for a deadline that knows nothing of their size (`is_needed=False`) is not a fault of the tier.
    """

    def damaged(digest: str, reason: str) -> CorruptEntry:
        tier.damaged.add(digest)
        return CorruptEntry(tier.path(blob_name(digest)), reason)

    def fetch(remote: Remote, digest: str, size: int) -> int:
        try:
            data = _read(remote, blob_name(digest), size, deadline)
        except TooLarge as error:
            raise damaged(digest, error.problem) from error
        if data is None:
            raise damaged(digest, "the blob is missing")
        if (actual_digest := sha256(data).hexdigest()) != digest:
            raise damaged(digest, f"its {len(data)} bytes have the sha256 {actual_digest}")
        tier.damaged.discard(digest)
        take(data)
        return len(data)

    def fetch_all(remote: Remote) -> int:
        return sum(at_once(lambda item: fetch(remote, *item), sorted(sizes.items())))

    return tier.ask(fetch_all) if is_needed else fetch_all(tier.remote)


def _read(remote: Remote, name: str, size: int, deadline: Deadline) -> bytes | None:
    data = remote.get(name, size, deadline)
    for seconds in _AGAIN_SECONDS:
        if data is not None or deadline.left <= seconds:
            break
        time.sleep(seconds)
        data = remote.get(name, size, deadline)
    return data
