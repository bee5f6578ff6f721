"""The stores on disk and in memory: their laws, misses with their reasons, limits and locks."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gearcache.cache.keys.key import FORMAT_VERSION, CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.manifest import MAGIC
from gearcache.cache.memory import MemoryStore
from gearcache.cache.store import DiskStore, Hit, Miss, MissReason
from gearcache.errors import CorruptEntry, UnsafePath
from tests.support.conformance import STORE_LAWS, StoreLaw, read_file

KEY = CacheKey("Model.decode", (("config", {"mode": "max"}), ("gears", (1, 2))))
OTHER = CacheKey("Model.decode", (("config", {"mode": "min"}), ("gears", (1, 2))))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    return DiskStore(Layout(tmp_path / "cache"), lock_timeout=0.05, clock=lambda: 12.5)


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def missed(store: DiskStore, key: CacheKey = KEY) -> Miss:
    found = store.lookup(key)
    assert isinstance(found, Miss)
    return found


@pytest.mark.parametrize("law", STORE_LAWS, ids=lambda law: law.__name__)
def test_the_store_on_disk_obeys_the_law(store: DiskStore, tmp_path: Path, law: StoreLaw) -> None:
    law(store, tmp_path)


@pytest.mark.parametrize("damage", ["flipped", "empty"])
def test_a_corrupt_manifest_is_a_miss_and_only_it_is_quarantined(store: DiskStore, damage: str) -> None:
    store.publish(OTHER, {}, {store.put_blob(b"code"): 4}, {})
    path = store.layout.manifest(KEY)
    store.publish(KEY, {"a": 1}, {}, {})
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data if damage == "flipped" else b"")
    damaged, before = path.read_bytes(), files_below(store.layout.root)

    found = missed(store)
    assert found.reason is MissReason.CORRUPT
    assert str(path) in found.detail

    after = files_below(store.layout.root)
    moved, reason = sorted(store.layout.quarantine_folder.iterdir())
    assert moved.name.startswith(f"{KEY.name}.manifest")
    assert moved.read_bytes() == damaged
    assert reason.read_text() == found.detail + "\n"
    gone = {name for name in before if name not in after}
    assert gone == {str(path.relative_to(store.layout.root))}
    assert missed(store).reason is MissReason.ABSENT


def test_a_manifest_of_another_key_is_corrupt(store: DiskStore) -> None:
    store.publish(OTHER, {}, {}, {})
    entry = store.layout.manifest(OTHER).parent
    entry.rename(entry.with_name(KEY.digest))
    found = missed(store)
    assert found.reason is MissReason.CORRUPT
    assert OTHER.digest in found.detail


def test_a_manifest_of_another_format_stays_and_is_a_miss_of_its_own(store: DiskStore) -> None:
    store.publish(KEY, {}, {}, {})
    path = store.layout.manifest(KEY)
    data = bytearray(path.read_bytes())
    data[len(MAGIC) + 1] = FORMAT_VERSION + 1
    path.write_bytes(data)
    found = missed(store)
    assert found.reason is MissReason.OTHER_VERSION
    assert f"written by format {FORMAT_VERSION + 1}" in found.detail
    assert path.read_bytes() == data


@pytest.mark.parametrize("how", ["writable", "link", pytest.param("of another user", marks=needs_root)])
def test_files_that_others_may_have_changed_are_refused_until_they_are_stored_again(store: DiskStore, how: str) -> None:
    digest = store.put_blob(b"code")
    store.publish(KEY, {}, {digest: 4}, {})
    paths = store.layout.manifest(KEY), store.layout.blob(digest)
    for path in paths:
        if how == "writable":
            path.chmod(0o660)
        elif how == "of another user":
            os.chown(path, 65534, 65534)
        else:
            path.symlink_to(path.rename(path.with_name("elsewhere")))
    for work in (lambda: store.lookup(KEY), lambda: store.read_blob(digest), lambda: read_file(store, digest)):
        with pytest.raises(UnsafePath):
            work()
    assert all(map(os.path.lexists, paths))
    store.publish(KEY, {}, {store.put_blob(b"code"): 4}, {})
    assert isinstance(store.lookup(KEY), Hit)
    assert store.read_blob(digest) == b"code"


@pytest.mark.parametrize("read", [DiskStore.read_blob, read_file])
@pytest.mark.parametrize("damage", [b"codE", b"code and more"], ids=repr)
def test_a_corrupt_blob_is_quarantined_and_only_it(
    store: DiskStore, read: Callable[[DiskStore, str], bytes], damage: bytes
) -> None:
    digest, other = store.put_blob(b"code"), store.put_blob(b"other")
    store.publish(KEY, {}, {digest: 4, other: 5}, {})
    path = store.layout.blob(digest)
    path.write_bytes(damage)
    with pytest.raises(CorruptEntry) as caught:
        read(store, digest)
    assert caught.value.path == path
    assert not store.has_blob(digest)
    moved, _ = sorted(store.layout.quarantine_folder.iterdir())
    assert moved.read_bytes() == damage
    assert store.read_blob(other) == b"other"
    assert isinstance(store.lookup(KEY), Hit)
    assert store.put_blob(b"code") == digest
    assert store.read_blob(digest) == b"code"


@pytest.mark.parametrize("law", STORE_LAWS, ids=lambda law: law.__name__)
def test_the_store_in_memory_obeys(law: StoreLaw, tmp_path: Path) -> None:
    root = tmp_path / "cache"
    law(MemoryStore(Layout(root), 0.05), tmp_path)
    assert not root.exists()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_objects_in_memory_are_loaded_and_cannot_be_changed(tmp_path: Path) -> None:
    store = MemoryStore(Layout(tmp_path / "cache"), 0.05)
    for number in (7, 8):
        (tmp_path / "answer.c").write_text(f"int answer(void) {{ return {number}; }}\n")
        target = tmp_path / "answer.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(target), str(tmp_path / "answer.c")], check=True)
        with store.blob_file(store.put_blob(target.read_bytes())) as name:
            assert ctypes.CDLL(name).answer() == number
            with pytest.raises(OSError, match="not permitted"):
                Path(name).write_bytes(b"other")


def test_what_a_signal_handler_raises_is_no_fault_of_the_disk(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise TimeoutError("the request took too long")

    monkeypatch.setattr("gearcache.cache.store.read_manifest", interrupted)
    with pytest.raises(TimeoutError, match="took too long"):
        store.lookup(KEY)
