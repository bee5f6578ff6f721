"""The index of entries: a help for lists that is made anew whenever it is wrong, and that no call opens."""

from __future__ import annotations

import pickle
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import diskcache
import pytest

from gearcache.cache.admin import scan as scan_module
from gearcache.cache.admin.catalog import Catalog
from gearcache.cache.admin.index import open_index
from gearcache.cache.admin.scan import read_entry
from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.store import DiskStore, Hit

KEYS = [CacheKey("Model.decode", (("number", number),)) for number in range(3)]


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    store = DiskStore(Layout(tmp_path / "cache"))
    for key in KEYS:
        store.publish(key, {}, {store.put_blob(key.digest.encode()): 64}, {"gears": [key.digest[:3]]})
    return store


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The manifests that a scan had to read."""
    found: list[Path] = []

    def counting(layout: Layout, path: Path, *rest: Any) -> Any:
        found.append(path)
        return read_entry(layout, path, *rest)

    monkeypatch.setattr(scan_module, "read_entry", counting)
    return found


def names(store: DiskStore) -> set[str]:
    return {entry.name for entry in Catalog(store.layout).entries()}


ALL = {key.name for key in KEYS}


@pytest.mark.parametrize("few", [0, 10_000])
def test_each_manifest_is_read_once_and_again_if_the_index_is_lost(
    store: DiskStore, reads: list[Path], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "MANY_ENTRIES", few)
    paths = [store.layout.manifest(key) for key in KEYS]
    for _ in range(2):
        assert sorted(Catalog(store.layout).entries()) == sorted(read_entry(store.layout, path) for path in paths)
    assert len(reads) == 3
    for path in store.layout.index_folder.iterdir():
        path.unlink()
    for _ in range(2):
        assert names(store) == ALL
    assert len(reads) == 6
    store.publish(KEYS[0], {}, {}, {})
    for _ in range(2):
        assert names(store) == ALL
    assert reads[6:] == [paths[0]]


@pytest.mark.parametrize("few", [0, 10_000])
def test_entries_that_came_went_and_changed_past_the_index_are_seen(
    store: DiskStore, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "MANY_ENTRIES", few)
    names(store)
    store.layout.manifest(KEYS[0]).unlink()
    store.layout.use(KEYS[0]).unlink()
    new = CacheKey("Model.prefill", (("number", 9),))
    for key in (KEYS[1], new):
        store.publish(key, {}, {}, {"gears": ["changed"]})
    found = {entry.name: entry.gears for entry in Catalog(store.layout).entries()}
    assert found == {KEYS[1].name: ("changed",), KEYS[2].name: (KEYS[2].digest[:3],), new.name: ("changed",)}


@pytest.mark.parametrize("damage", ["text", "pickle", "flip", "link"])
def test_a_damaged_index_is_made_anew(store: DiskStore, damage: str, tmp_path: Path) -> None:
    names(store)
    database = store.layout.index_folder / "cache.db"
    if damage == "text":
        database.write_bytes(b"not a database, but long enough to be one" * 100)
    elif damage == "link":
        database.rename(tmp_path / "elsewhere")
        database.symlink_to(tmp_path / "elsewhere")
    else:
        with sqlite3.connect(database) as connection:
            if damage == "pickle":
                value = sqlite3.Binary(pickle.dumps(Bomb()))
                connection.execute("UPDATE Cache SET mode = ?, value = ?", (diskcache.core.MODE_PICKLE, value))
            else:
                connection.execute("UPDATE Cache SET value = CAST(value || 'x' AS BLOB)")
        connection.close()
    assert names(store) == ALL
    assert names(store) == ALL
    assert Bomb.exploded == 0
    with open_index(store.layout) as index:
        assert index is not None
        assert len({entry.identity for entry in index.entries}) == 3


class Bomb:
    """Counts how often it was unpickled."""

    exploded = 0

    def __reduce__(self) -> Any:
        return Bomb.explode, ()

    @staticmethod
    def explode() -> None:
        Bomb.exploded += 1


def test_a_locked_index_delays_neither_lists_nor_publishes(store: DiskStore) -> None:
    names(store)
    opened, done = threading.Event(), threading.Event()

    def hold() -> None:
        connection = sqlite3.connect(store.layout.index_folder / "cache.db")
        connection.execute("BEGIN EXCLUSIVE")
        opened.set()
        done.wait()
        connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    opened.wait()
    try:
        begin = time.monotonic()
        store.publish(KEYS[0], {"a": 1}, {}, {})
        assert names(store) == ALL
        assert isinstance(DiskStore(store.layout).lookup(KEYS[0]), Hit)
        assert time.monotonic() - begin < 5
    finally:
        done.set()
        thread.join()
    assert names(store) == ALL
