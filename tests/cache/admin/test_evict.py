"""Eviction: the least recently used goes first, never an entry in use, never the one just written."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given, settings
from hypothesis import strategies as st

from gearcache.cache.admin.evict import entries_to_evict
from gearcache.cache.admin.row import EntryRow, entry_of, total_size
from gearcache.cache.limits import Limits
from gearcache.cache.manifest import Manifest
from tests.support.sampled import examples

SIZES = {sha256(bytes([number])).hexdigest(): 10 * (number + 1) for number in range(6)}
DIGESTS = list(SIZES)


def entry(number: int, blobs: list[int], last_use: float = 0.0) -> EntryRow:
    sizes = {DIGESTS[blob]: SIZES[DIGESTS[blob]] for blob in blobs}
    digest = sha256(b"key" + bytes([number])).hexdigest()
    manifest = Manifest("M-" + digest, digest, {}, {}, sizes, 1.0, {"gears": ["a", "b"], "compile_seconds": 1.5})
    return entry_of(manifest, ("M", digest, ""), 5)._replace(last_use=last_use)


ENTRIES = st.lists(
    st.builds(
        entry,
        st.integers(0, 50),
        st.lists(st.integers(0, 5), unique=True, max_size=4),
        st.floats(0, 10),
    ),
    unique_by=lambda found: found.identity,
    max_size=12,
)


@settings(max_examples=examples(100))
@given(ENTRIES, st.integers(0, 300), st.none() | st.floats(0, 10), st.data())
def test_what_stays_is_within_the_limits_and_no_more_goes_than_must(
    entries: list[EntryRow], max_size: int, max_age: float | None, data: st.DataObject
) -> None:
    keep = {found.identity for found in entries if data.draw(st.booleans())}
    evicted = entries_to_evict(entries, Limits(max_size, max_age), 10.0, keep)
    stays = [found for found in entries if found not in evicted]
    assert not {found.identity for found in evicted} & keep
    removable = [found for found in stays if found.identity not in keep]
    if max_age is not None:
        assert all(10.0 - found.last_use <= max_age for found in removable)
    if removable:
        assert total_size(stays) <= max_size
        young = [found for found in evicted if max_age is None or 10.0 - found.last_use <= max_age]
        if young:
            assert max(found.last_use for found in young) <= min(found.last_use for found in removable)
            assert total_size([*stays, young[-1]]) > max_size, "the last one need not have gone"
