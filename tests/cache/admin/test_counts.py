"""Counting anew: what was counted before is subtracted, and nothing is lost beside it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.counts import Counts, reset_counts
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.store import DiskStore

KEY = CacheKey("Model.decode", (("number", 1),))


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "cache")
    store = DiskStore(layout)
    store.publish(KEY, {}, {store.put_blob(b"code"): 4}, {})
    return layout


def counted(layout: Layout) -> tuple[int, int]:
    """Hits and misses."""
    counts = Counts(layout)
    hits = sum(counts.hits(entry) for entry in Catalog(layout).entries())
    return hits, sum(number for reasons in counts.misses().values() for number in reasons.values())


def use(layout: Layout, times: int) -> None:
    for _ in range(times):
        store = DiskStore(layout)
        assert store.use(KEY)
        store.count_load(KEY)


def test_an_entry_that_was_made_again_counts_from_its_own_beginning(layout: Layout) -> None:
    use(layout, 3)
    catalog = Catalog(layout)
    reset_counts(layout, catalog.entries(), 1.0)
    catalog.remove(catalog.entries())
    store = DiskStore(layout)
    store.publish(KEY, {}, {store.put_blob(b"code"): 4}, {})
    use(layout, 2)
    assert counted(layout) == (2, 0)


def test_a_load_that_serves_nothing_keeps_an_entry_young_and_is_no_hit(layout: Layout) -> None:
    os.utime(layout.use(KEY), (1000, 1000))
    store = DiskStore(layout)
    assert store.use(KEY)
    store.count_load(KEY, served=False)
    (entry,) = Catalog(layout).entries()
    assert (entry.hits, counted(layout)) == (0, (0, 0))
    assert abs(layout.use(KEY).stat().st_mtime - time.time()) < 60
