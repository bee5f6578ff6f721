"""Choose the entries to evict: pure functions over entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from gearcache.cache.limits import Limits

if TYPE_CHECKING:
    from gearcache.cache.admin.row import EntryRow


def entries_to_evict(
    entries: Sequence[EntryRow], limits: Limits, now: float, keep: Collection[tuple[str, str, str]] = ()
) -> list[EntryRow]:
    """Return the entries to drop, least recently used first, until the rest is within the limits.

    Entries whose identities are in `keep` stay, even when the limits are then missed. A blob counts once, and is freed
    with the last entry that needs it: dropping an entry frees its own files and the blobs that only this entry still
    needs.
    """
    oldest = sorted(entries, key=lambda entry: (entry.last_use, entry.created, entry.identity))
    evicted: list[EntryRow] = []
    remaining: list[EntryRow] = []
    for entry in oldest:
        too_old = limits.max_age is not None and now - entry.last_use > limits.max_age
        (evicted if too_old and entry.identity not in keep else remaining).append(entry)
    if limits.max_size is None:
        return evicted
    blobs = [entry.blob_sizes() for entry in remaining]
    holders = Counter(digest for sizes in blobs for digest in sizes)
    unique = {digest: size for sizes in blobs for digest, size in sizes.items()}
    total = sum(entry.own_size for entry in remaining) + sum(unique.values())
    for entry, sizes in zip(remaining, blobs, strict=True):
        if total <= limits.max_size:
            break
        if entry.identity in keep:
            continue
        total -= entry.own_size
        for digest in sizes:
            holders[digest] -= 1
            if not holders[digest]:
                total -= unique[digest]
        evicted.append(entry)
    return evicted
