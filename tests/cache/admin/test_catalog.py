"""The catalog: what is listed, found and removed, and that damaged entries stop nobody."""

from __future__ import annotations

import os
import time
from hashlib import sha256
from pathlib import Path

import pytest

from gearcache.cache.admin import scan as scan_module
from gearcache.cache.admin.catalog import Catalog, Removal
from gearcache.cache.admin.row import total_size
from gearcache.cache.admin.verify import Fault, verify
from gearcache.cache.keys.key import FORMAT_VERSION, CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.limits import Limits
from gearcache.cache.quarantine import quarantined
from gearcache.cache.store import DiskStore
from gearcache.cache.upkeep import bytes_stored, keep_limits
from gearcache.errors import CacheError, UnsafePath

KEYS = [
    CacheKey(f"Model.{name}", (("name", name), ("number", number)))
    for name in ("decode", "prefill")
    for number in (1, 2)
]
SHARED = b"s" * 1000


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "cache")
    for number, key in enumerate(KEYS):
        publish(layout, key, number)
    return layout


def publish(layout: Layout, key: CacheKey, number: int) -> None:
    store = DiskStore(layout, clock=lambda: 100.0 + number)
    with store.writing():
        sizes = {store.put_blob(data): len(data) for data in (SHARED, key.digest.encode() * 10)}
        store.publish(key, {}, sizes, {"gears": ["x=1", "x=2"], "variants": 1, "torch": "2.13"})
    del store  # it uses what it has published
    os.utime(layout.use(key), (100 + number, 100 + number))


def names(catalog: Catalog) -> list[str]:
    return [entry.name for entry in catalog.entries()]


def files(layout: Layout) -> set[str]:
    return {str(path.relative_to(layout.bucket)) for path in layout.bucket.rglob("*") if path.is_file()}


def test_what_a_backend_keeps_is_no_leftover_of_a_sound_entry(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "cache", "rank1")
    store = DiskStore(layout)
    store.publish(KEYS[0], {}, {}, {"folders": True})
    kept = [layout.manifest(KEYS[0]).parent / name for name in ("ge", "static_kernels")]
    for folder in kept:
        folder.mkdir()
    (kept[0] / "graph.om").write_bytes(b"graph")
    catalog = Catalog(layout)
    for used in (True, False):
        if not used:
            del store
        assert verify(layout).faults == []
        assert catalog.collect().leftovers == []
        assert all(folder.is_dir() for folder in kept)
    layout.manifest(KEYS[0]).unlink()
    assert len(catalog.collect().leftovers) == 1
    assert list(layout.entries_folder.iterdir()) == []


def test_a_removed_entry_leaves_nothing_but_what_others_need(layout: Layout) -> None:
    catalog = Catalog(layout)
    before = files(layout)
    entry = catalog.find(KEYS[0].digest)[0]
    dry = catalog.remove([entry], dry_run=True)
    assert files(layout) >= before
    outcome = catalog.remove([entry])
    assert (dry.removed, dry.blobs, dry.freed) == (outcome.removed, outcome.blobs, outcome.freed)
    assert (outcome.blobs, outcome.freed) == (1, entry.manifest_size + 640)
    gone = {name for name in before if name not in files(layout)}
    assert gone == {
        f"entries/Model.decode/{KEYS[0].digest}/manifest.msgpack",
        f"entries/Model.decode/{KEYS[0].digest}/use",
        next(name for name in before if name.startswith("blobs") and (layout.bucket / name) == own_blob(layout, 0)),
    }
    assert not layout.manifest(KEYS[0]).parent.exists()
    outcome = catalog.remove(catalog.entries())
    assert outcome.blobs == 4, "three of their own, and the shared one with its last user"
    assert list(layout.blobs()) == []
    assert list(layout.entries_folder.iterdir()) == []


def own_blob(layout: Layout, number: int) -> Path:
    return layout.blob(sha256(KEYS[number].digest.encode() * 10).hexdigest())


def test_pruning_drops_the_least_recently_used_until_the_rest_fits(layout: Layout) -> None:
    catalog = Catalog(layout, clock=lambda: 110.0)
    entries = catalog.entries()
    limit = total_size(entries) - 1
    dry = catalog.prune(max_size=limit, dry_run=True)
    outcome = catalog.prune(max_size=limit)
    assert [entry.name for entry in outcome.removed] == [KEYS[0].name] == [entry.name for entry in dry.removed]
    assert total_size(catalog.entries()) <= limit
    assert total_size(entries) - total_size(catalog.entries()) == outcome.freed == dry.freed
    assert [entry.name for entry in catalog.prune(max_age=8.0).removed] == [KEYS[1].name]
    kept = catalog.entries()[-1]
    assert [entry.name for entry in catalog.prune(max_size=0, keep=[kept.identity]).removed] == [KEYS[3].name]
    assert names(catalog) == [kept.name]


@pytest.mark.parametrize("few", [0, 10_000])
def test_files_that_a_backend_keeps_count_and_go_with_their_entry(
    layout: Layout, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "MANY_ENTRIES", few)
    with (store := DiskStore(layout, clock=lambda: 100.0)).writing():
        store.publish(KEYS[0], {}, {}, {"folders": True})
    del store  # it uses what it published
    os.utime(layout.use(KEYS[0]), (100, 100))
    catalog = Catalog(layout)

    def size() -> int:
        return next(entry.size for entry in catalog.entries() if entry.digest == KEYS[0].digest)

    before, total = size(), total_size(catalog.entries())
    graph = layout.manifest(KEYS[0]).parent / "ge" / "graph_key" / "rank0"
    graph.mkdir(parents=True)
    (graph / "graph.om").write_bytes(bytes(5000))  # as GE does: after the publish, past the index
    assert size() == before + 5000
    (graph / "graph.idx").write_bytes(bytes(70))
    assert size() == before + 5070
    assert total_size(catalog.entries()) == total + 5070
    outcome = catalog.prune(max_size=total)
    assert [entry.digest for entry in outcome.removed] == [KEYS[0].digest]
    assert outcome.freed == before + 5070
    assert not graph.parent.exists()


def test_a_used_entry_stays_and_others_go_in_its_place(layout: Layout) -> None:
    catalog = Catalog(layout)
    store = DiskStore(layout)
    store.use(KEYS[0])
    entries = catalog.entries()
    size = total_size(entries)
    for dry_run in (True, False):
        outcome = catalog.prune(max_size=size - 1, dry_run=dry_run)
        assert [entry.name for entry in outcome.removed] == [KEYS[1].name]
        assert outcome.in_use == [], "the limit is met without it"
    outcome = catalog.prune(max_size=size, max_age=0.0)
    assert [entry.name for entry in outcome.in_use] == [KEYS[0].name], "it is too old, whatever the size"


def test_what_a_writer_keeps_from_being_removed_is_told(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(layout, patience=0.01)
    outcome, store = Removal(), DiskStore(layout)
    with store.writing():
        outcome.add(catalog.collect())
    assert ["another process is writing" in str(fault) for fault in outcome.faults] == [True]
    in_use, unused = catalog.entries()[:2]
    store.use(next(key for key in KEYS if key.name == in_use.name))
    monkeypatch.setattr("gearcache.cache.admin.catalog.needed_blobs", _raise)
    outcome = catalog.remove([in_use, unused])
    assert (outcome.in_use, outcome.removed) == ([in_use], [unused])
    assert len(outcome.faults) == 1


def _raise(scan_result: object) -> None:
    raise CacheError("a manifest cannot be read")


def test_no_entry_goes_while_a_manifest_cannot_be_read(layout: Layout, caplog: pytest.LogCaptureFixture) -> None:
    layout.manifest(KEYS[0]).chmod(0o666)  # which others may have changed
    before = {name for name in files(layout) if name.startswith(("entries/", "blobs/"))}
    outcome = Catalog(layout).prune(max_size=0, max_age=0.0)
    assert (outcome.removed, [type(fault) for fault in outcome.faults]) == ([], [UnsafePath])
    for _ in range(2):
        keep_limits(layout, Limits(10), ("Model.decode", KEYS[1].digest, ""))
    assert {name for name in files(layout) if name.startswith(("entries/", "blobs/"))} == before
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "over its limit, and no entry is removed: " in warning
    layout.manifest(KEYS[0]).chmod(0o600)
    assert len(Catalog(layout).prune(max_size=0).removed) == len(KEYS)


def test_the_fast_clock_of_another_host_keeps_no_entry(layout: Layout) -> None:
    with (store := DiskStore(layout, clock=lambda: time.time() + 30 * 86400)).writing():
        store.publish(KEYS[0], {}, {}, {})
    del store
    os.utime(layout.use(KEYS[0]), (100, 100))
    catalog = Catalog(layout, clock=lambda: time.time() + 2 * 86400)
    (entry,) = catalog.find(KEYS[0].digest)
    assert abs(entry.last_use - time.time()) < 60
    assert KEYS[0].name in [entry.name for entry in catalog.prune(max_age=86400).removed]


def test_blobs_of_killed_writers_do_not_keep_a_cache_over_its_limit(layout: Layout) -> None:
    store = DiskStore(layout)
    limit = bytes_stored(layout) + 1000
    orphans = [layout.blob(store.put_blob(bytes([number]) * 1000)) for number in range(3)]
    keep_limits(layout, Limits(limit), Catalog(layout).entries()[0].identity)
    assert not any(path.exists() for path in orphans)
    assert len(Catalog(layout).entries()) == len(KEYS)


def test_a_load_that_serves_nothing_keeps_an_entry_young_and_is_no_hit(layout: Layout) -> None:
    store = DiskStore(layout)
    assert store.use(KEYS[0])
    store.count_load(KEYS[0], served=False)
    (entry,) = Catalog(layout).find(KEYS[0].digest)
    assert entry.hits == 0
    assert abs(layout.use(KEYS[0]).stat().st_mtime - time.time()) < 60


def test_an_entry_counts_as_used_until_its_use_ends(layout: Layout) -> None:
    catalog, store, file = Catalog(layout), DiskStore(layout), layout.use(KEYS[0])
    store.use(KEYS[0])
    os.utime(file, (100, 100))  # loaded long ago
    assert KEYS[0].name in [entry.name for entry in catalog.prune(max_age=3600).in_use]
    assert time.time() - file.stat().st_mtime < 60, "who finds it in use says so"
    os.utime(file, (100, 100))
    assert KEYS[0].name not in [entry.name for entry in catalog.prune(max_age=3600, dry_run=True).removed]
    assert file.stat().st_mtime == 100
    del store
    assert catalog.prune(max_age=3600).removed == []
    assert names(catalog) == [KEYS[0].name]


def test_an_entry_that_was_used_since_it_was_listed_stays(layout: Layout) -> None:
    catalog = Catalog(layout)
    (used,), (other,) = (catalog.find(key.digest) for key in KEYS[:2])
    os.utime(layout.use(KEYS[0]))
    outcome = catalog.remove([used, other], only_unused=True)
    assert (outcome.in_use, outcome.removed) == ([used], [other])
    assert [entry.name for entry in catalog.remove([used]).removed] == [KEYS[0].name]


def test_collecting_removes_what_no_entry_needs_and_nothing_else(layout: Layout) -> None:
    catalog = Catalog(layout)
    catalog.entries()
    before = files(layout)
    store = DiskStore(layout)
    unreferenced = layout.blob(store.put_blob(b"unreferenced"))
    unfinished = [
        unreferenced.with_name(".writing-host-1-aa"),
        layout.manifest(KEYS[0]).with_name(".writing-host-1-bb"),
        layout.root / ".writing-host-1-cc",
        layout.locks_folder / ".writing-host-1-ee",
    ]
    young = layout.quarantine_folder / ".writing-host-1-dd"
    for path in (*unfinished, young):
        path.write_bytes(b"half")
    for old in unfinished[2:]:
        os.utime(old, (1, 1))
    empty = layout.entry("Model.gone", KEYS[0].digest, "rank1")
    empty.mkdir(parents=True)
    (empty / "use").touch()
    dry = catalog.collect(dry_run=True)
    assert unreferenced.exists()
    found = catalog.collect()
    assert found.fault is None
    assert found.blobs == dry.blobs == [unreferenced]
    assert set(unfinished) | {empty} <= set(found.leftovers)
    assert set(found.leftovers) == {*dry.leftovers, empty.parent} or set(found.leftovers) == set(dry.leftovers)
    assert found.freed == len(b"unreferenced") + 4 * 4
    assert files(layout) == before | {"quarantine/.writing-host-1-dd"}
    assert not empty.parent.parent.exists()


@pytest.mark.parametrize("how", ["unsafe", "other format"])
def test_no_blob_goes_while_an_entry_cannot_be_read(layout: Layout, how: str) -> None:
    path = layout.manifest(KEYS[0])
    if how == "unsafe":
        path.chmod(0o666)
    else:
        data = bytearray(path.read_bytes())
        data[11] = FORMAT_VERSION + 1
        path.write_bytes(data)
    before = files(layout)
    catalog = Catalog(layout)
    unreferenced = layout.blob(DiskStore(layout).put_blob(b"unreferenced"))
    assert catalog.collect().fault is not None
    assert unreferenced.exists()
    catalog.remove(catalog.find(KEYS[1].digest))
    assert {name for name in before if name.startswith("blobs")} <= files(layout)


def test_a_remover_follows_no_link_out_of_the_cache(layout: Layout, tmp_path: Path) -> None:
    catalog = Catalog(layout)
    entries = catalog.entries()
    outside = tmp_path / "outside"
    (layout.entries_folder / "Model.decode").rename(outside)
    (layout.entries_folder / "Model.decode").symlink_to(outside)
    outcome = catalog.remove(entries)
    assert {type(fault) for fault in outcome.faults} == {UnsafePath}
    assert len(list(outside.rglob("manifest.msgpack"))) == 2


def kinds(faults: list[Fault]) -> list[str]:
    return sorted(fault.kind for fault in faults)


def test_verify_finds_every_kind_of_fault_and_repairs_what_it_may(layout: Layout) -> None:
    store = DiskStore(layout)
    own_blob(layout, 0).write_bytes(b"wrong")
    layout.manifest(KEYS[1]).write_bytes(layout.manifest(KEYS[1]).read_bytes()[:-1])
    layout.manifest(KEYS[2]).chmod(0o606)
    store.put_blob(b"unreferenced")
    own_blob(layout, 3).with_name(".writing-x").touch()
    seen: list[tuple[int, int]] = []
    found = verify(layout, progress=lambda done, total: seen.append((done, total)))
    assert kinds(found.faults) == ["corrupt", "corrupt", "incomplete", "leftover", "unsafe"]
    assert not found.is_sound
    assert not any(fault.repaired for fault in found.faults)
    assert (found.entries, found.blobs) == (1, 5)
    assert seen[-1][0] == seen[-1][1] == 10

    repaired = verify(layout, repair=True)
    assert {fault.kind for fault in repaired.faults if not fault.repaired} == {"unsafe"}
    layout.manifest(KEYS[2]).chmod(0o600)
    # The blobs of entries in the quarantine belong to nobody now: the unsafe manifest kept them until it was mended.
    assert kinds(verify(layout).faults) == ["unreferenced", "unreferenced"]
    assert verify(layout, repair=True).is_sound
    assert verify(layout).faults == []
    catalog = Catalog(layout)
    assert len(quarantined(layout)) == 3
    assert all(found.reason and found.size for found in quarantined(layout))
    catalog.clear_quarantine(cleared := Removal())
    assert cleared.freed > 0
    assert cleared.quarantined == 3
    assert list(layout.quarantine_folder.iterdir()) == []
    assert {entry.name for entry in catalog.entries()} == {KEYS[2].name, KEYS[3].name}
