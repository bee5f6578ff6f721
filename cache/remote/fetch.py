"""Fetch blobs from a tier: several at once, each verified before use."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from hashlib import sha256

from gearcache.cache.remote.engines.protocol import Deadline, Remote
from gearcache.cache.remote.names import blob_name
from gearcache.cache.remote.requests.parallel import at_once
from gearcache.cache.remote.tier import Tier
from gearcache.errors import CorruptEntry

#: A share may report a present file as absent: it is asked again after these seconds.
_AGAIN_SECONDS = (0.2, 1.0)


def fetch_blobs(tier: Tier, sizes: Mapping[str, int], take: Callable[[bytes], object], deadline: Deadline) -> int:
    """Hand the bytes of each blob, verified, to `take`; return the number of bytes.

    `RemoteError` where a blob is late, `CorruptEntry` where a blob is missing or does not match its name; the tier
    remembers both as damaged. Blobs that arrived before are kept.
    """

    def fetch(remote: Remote, digest: str, size: int) -> int:
        data = _read(remote, blob_name(digest), size, deadline)
        if data is None:
            tier.damaged.add(digest)
            raise CorruptEntry(tier.path(blob_name(digest)), "the blob is missing")
        if (actual_digest := sha256(data).hexdigest()) != digest:
            tier.damaged.add(digest)
            raise CorruptEntry(tier.path(blob_name(digest)), f"its {len(data)} bytes have the sha256 {actual_digest}")
        take(data)
        return len(data)

    return tier.ask(lambda remote: sum(at_once(lambda item: fetch(remote, *item), sorted(sizes.items()))))


def _read(remote: Remote, name: str, size: int, deadline: Deadline) -> bytes | None:
    data = remote.get(name, size, deadline)
    for seconds in _AGAIN_SECONDS:
        if data is not None or deadline.left <= seconds:
            break
        time.sleep(seconds)
        data = remote.get(name, size, deadline)
    return data
