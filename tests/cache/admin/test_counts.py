"""Counting anew: what was counted before is subtracted, and nothing is lost beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgpack
import pytest

from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.counts import BASELINE_NAME, Counts, reset_counts
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


def test_no_count_is_lost_beside_a_reset(layout: Layout) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom gearcache.cache.layout import Layout\n"
        "from gearcache.cache.store import DiskStore\n"
        "from gearcache.cache.admin.tally import count_misses\n"
        "from tests.cache.admin.test_counts import KEY\n"
        "layout = Layout(Path(sys.argv[1]))\nstore = DiskStore(layout)\nstore.use(KEY)\n"
        "for _ in range(400):\n    store.count_load(KEY)\n    count_misses(layout, 'Model.decode', ['absent'])\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(layout.root)]) for _ in range(2)]
    total = [0, 0]
    while any(writer.poll() is None for writer in writers):
        entries = Catalog(layout).entries()
        reset_counts(layout, entries, time.time())
    assert [writer.wait(timeout=200) for writer in writers] == [0, 0]
    # What all resets have taken away and what is left are all that was counted.
    baseline = msgpack.unpackb((layout.bucket / BASELINE_NAME).read_bytes())
    total = [baseline["hits"][0][-1] + counted(layout)[0], baseline["misses"][0][-1] + counted(layout)[1]]
    assert total == [800, 800]


@pytest.mark.parametrize("data", [b"", msgpack.packb({"since": -1.0, "hits": [], "misses": []})])
def test_a_reset_that_cannot_be_read_is_told_and_passed_over(layout: Layout, data: bytes) -> None:
    use(layout, 2)
    (layout.bucket / BASELINE_NAME).write_bytes(data)
    (layout.bucket / BASELINE_NAME).chmod(0o600)
    assert counted(layout) == (2, 0)
    assert BASELINE_NAME in str(Counts(layout).fault)
    reset_counts(layout, Catalog(layout).entries(), 5.0)
    assert Counts(layout).fault is None


def test_a_load_that_serves_nothing_keeps_an_entry_young_and_is_no_hit(layout: Layout) -> None:
    os.utime(layout.use(KEY), (1000, 1000))
    store = DiskStore(layout)
    assert store.use(KEY)
    store.count_load(KEY, served=False)
    (entry,) = Catalog(layout).entries()
    assert (entry.hits, counted(layout)) == (0, (0, 0))
    assert abs(layout.use(KEY).stat().st_mtime - time.time()) < 60
