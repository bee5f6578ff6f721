"""The nearest entry of a key that misses, found at bounded cost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gearcache.cache.keys.key import CacheKey, Difference
from gearcache.cache.keys.nearest import Nearest, nearest_entry
from gearcache.cache.layout import Layout
from gearcache.cache.store import DiskStore


def key(label: str = "Model.decode", **components: object) -> CacheKey:
    return CacheKey(label, tuple(components.items()))  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    return DiskStore(Layout(tmp_path))


def publish(store: DiskStore, stored: CacheKey, age: int = 0) -> Path:
    store.publish(stored, {}, {}, {})
    path = store.layout.manifest(stored)
    os.utime(path, (1_000_000 - age, 1_000_000 - age))
    return path


def nearest(store: DiskStore, ranks: str = "", **components: object) -> Nearest:
    """The nearest entry of `Model.decode` with these components, which must be there."""
    found = nearest_entry(Layout(store.layout.root, ranks), key(**components))
    assert found is not None
    return found


def test_the_newest_entry_with_the_fewest_differing_components_is_nearest(store: DiskStore) -> None:
    publish(store, key(a=0, b=0, c=0))
    publish(store, key(a=1, b=1, c=2), age=9)
    near = publish(store, key(a=1, b=1, c=0), age=5)
    found = nearest(store, a=1, b=1, c=1)
    assert (found.path, found.differing) == (near, 1)
    assert found.difference == Difference("c", "", 1, 0)


def test_faulty_manifests_are_passed_over_and_left_alone(store: DiskStore) -> None:
    damaged, unsafe = publish(store, key(a=2)), publish(store, key(a=3))
    good = publish(store, key(a=4), age=5)
    damaged.write_bytes(b"damaged")
    unsafe.chmod(0o666)
    assert nearest(store, a=1).path == good
    assert damaged.read_bytes() == b"damaged"
