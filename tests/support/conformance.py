"""The laws that every store obeys."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from threading import Thread

import pytest

from gearcache.cache.keys.key import CacheKey
from gearcache.cache.protocol import Store
from gearcache.cache.store import Hit, Miss, MissReason
from gearcache.errors import CorruptEntry, LockTimeout, PublishError

StoreLaw = Callable[[Store, Path], None]
UNKNOWN = sha256(b"never stored").hexdigest()


def key_named(label: str, **components: int) -> CacheKey:
    """A small key; the label is a component too, so that laws do not meet in one entry."""
    return CacheKey(f"Law.{label}", (("label", label), *components.items()))


def read_file(store: Store, digest: str) -> bytes:
    """The bytes of a blob as a backend reads them that needs a file."""
    with store.blob_file(digest) as name, Path(name).open("rb") as file:
        return file.read()


def a_published_entry_is_a_hit(store: Store, folder: Path) -> None:
    key = key_named("published", gears=2)
    blob = store.put_blob(b"code")
    payload = {"variants": [{"scalars": [1, True, 1.0, None, "x", b"y"]}]}
    published = store.publish(key, payload, {blob: 4}, {"torch": "2.13"})
    assert store.lookup(key) == Hit(published)
    assert published.payload == payload
    assert published.blobs == {blob: 4}
    assert (published.name, published.key_digest) == (key.name, key.digest)
    assert published.components == {"label": "published", "gears": 2}


def another_key_stays_a_miss(store: Store, folder: Path) -> None:
    store.publish(key_named("neighbour", gears=2), {}, {}, {})
    for explain in (True, False):
        found = store.lookup(key_named("neighbour", gears=3), explain=explain)
        assert isinstance(found, Miss)
        assert found.reason is MissReason.ABSENT


def an_entry_whose_blob_is_not_stored_cannot_be_published(store: Store, folder: Path) -> None:
    key = key_named("incomplete")
    with pytest.raises(PublishError, match="is not stored"):
        store.publish(key, {}, {UNKNOWN: 1}, {})
    assert isinstance(store.lookup(key), Miss)


def an_entry_whose_blob_has_another_size_cannot_be_published(store: Store, folder: Path) -> None:
    key = key_named("wrong size")
    with pytest.raises(PublishError, match="has 3 bytes instead of 4"):
        store.publish(key, {}, {store.put_blob(b"abc"): 4}, {})
    assert isinstance(store.lookup(key), Miss)


def a_blob_comes_back_under_its_sha256(store: Store, folder: Path) -> None:
    for data in (b"", b"law", bytes(3 << 20)):
        digest = store.put_blob(data)
        assert digest == sha256(data).hexdigest()
        assert store.put_blob(data) == digest
        assert store.has_blob(digest)
        assert store.read_blob(digest) == data
        assert read_file(store, digest) == data


def an_unknown_blob_is_a_corrupt_entry(store: Store, folder: Path) -> None:
    assert not store.has_blob(UNKNOWN)
    with pytest.raises(CorruptEntry, match="missing"):
        store.read_blob(UNKNOWN)
    with pytest.raises(CorruptEntry, match="missing"):
        read_file(store, UNKNOWN)


def what_is_no_sha256_is_no_blob(store: Store, folder: Path) -> None:
    for name in ("", "../../etc/passwd", UNKNOWN.upper(), UNKNOWN + "0"):
        with pytest.raises(ValueError, match="sha256"):
            store.read_blob(name)


def one_thread_at_a_time_holds_a_key(store: Store, folder: Path) -> None:
    """Needs a store whose lock timeout is short."""
    outcome: list[str] = []

    def contend() -> None:
        try:
            with store.exclusive(key_named("locked")):
                outcome.append("held")
        except LockTimeout:
            outcome.append("timeout")

    with store.exclusive(key_named("locked")), store.exclusive(key_named("another")):
        thread = Thread(target=contend)
        thread.start()
        thread.join()
    contend()
    assert outcome == ["timeout", "held"]


def holders_of_two_labels_do_not_wait_for_one_another(store: Store, folder: Path) -> None:
    """Though everything else of their keys is the same, and so the digest."""
    first, second = (CacheKey(name, (("gear", 1),)) for name in ("Query.run", "Passage.run"))
    with store.exclusive(first), store.exclusive(second):
        store.publish(second, {}, {}, {})
    assert isinstance(store.lookup(first), Miss)


def a_load_is_a_lookup(store: Store, folder: Path) -> None:
    key = key_named("loaded")
    assert isinstance(store.load(key), Miss)
    published = store.publish(key, {}, {}, {})
    assert store.load(key) == store.load(key, explain=False) == Hit(published)


STORE_LAWS: tuple[StoreLaw, ...] = (
    a_published_entry_is_a_hit,
    another_key_stays_a_miss,
    an_entry_whose_blob_is_not_stored_cannot_be_published,
    an_entry_whose_blob_has_another_size_cannot_be_published,
    a_blob_comes_back_under_its_sha256,
    an_unknown_blob_is_a_corrupt_entry,
    what_is_no_sha256_is_no_blob,
    one_thread_at_a_time_holds_a_key,
    holders_of_two_labels_do_not_wait_for_one_another,
    a_load_is_a_lookup,
)
