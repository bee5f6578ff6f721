"""The quarantine of damaged files, and its bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gearcache.cache import quarantine as quarantine_module
from gearcache.cache.admin.catalog import Catalog, Removal
from gearcache.cache.layout import Layout
from gearcache.cache.quarantine import MAX_KEPT, quarantine, quarantined
from gearcache.cache.store import DiskStore
from gearcache.errors import CorruptEntry


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "cache")
    layout.prepare()
    return layout


def damage(layout: Layout, times: int, size: int = 1000) -> None:
    for number in range(times):
        bad = layout.blobs_folder / "bad"
        bad.write_bytes(bytes(size))
        fault = CorruptEntry(bad, f"damage {number}")

        def check(fault: CorruptEntry = fault) -> None:
            raise fault

        quarantine(layout, fault, "bad.blob", check)


def size_of(layout: Layout) -> int:
    return sum(path.stat().st_size for path in layout.quarantine_folder.iterdir())


def test_a_disk_that_damages_what_it_holds_does_not_fill_with_it(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(layout, MAX_KEPT + 9)
    kept = quarantined(layout)
    assert len(kept) == MAX_KEPT
    assert {item.reason for item in kept} >= {f"`{layout.blobs_folder / 'bad'}` is corrupt: damage {MAX_KEPT + 8}"}
    assert len(list(layout.quarantine_folder.iterdir())) == 2 * MAX_KEPT
    monkeypatch.setattr(quarantine_module, "MAX_KEPT_SIZE", 5500)
    damage(layout, 1)
    assert 2000 < size_of(layout) <= 5500
    damage(layout, 1, size=10_000)
    assert len(quarantined(layout)) == 1, "the newest one stays, however large"
    assert size_of(layout) > 10_000


@pytest.mark.parametrize("how", ["prune", "clear", "collect"])
def test_the_quarantine_goes_by_age_and_with_all(layout: Layout, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    damage(layout, 3)
    now = quarantined(layout)[-1].since
    catalog = Catalog(layout, clock=lambda: now + 40 * 86400)
    outcome = Removal()
    if how == "prune":
        assert catalog.prune(max_age=50 * 86400).quarantined == 0
        outcome = catalog.prune(max_age=39 * 86400)
    elif how == "clear":
        catalog.clear_quarantine(outcome, max_age=39 * 86400)
    else:
        assert Catalog(layout, clock=lambda: now + 29 * 86400).collect().quarantined == 0
        found = catalog.collect()
        outcome = Removal(quarantined=found.quarantined, freed=found.freed)
    assert outcome.quarantined == 3
    assert outcome.freed > 3000
    assert list(layout.quarantine_folder.iterdir()) == []


@pytest.mark.parametrize("again", [False, True])
def test_a_sound_file_that_comes_between_the_check_and_the_move_is_back_at_once(
    layout: Layout, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskStore(layout)
    digest = store.put_blob(b"code")
    path = layout.blob(digest)
    path.write_bytes(b"wrong")
    move = quarantine_module.move_aside

    def late(source: Path, target: Path) -> Any:
        DiskStore(layout).put_blob(b"code")
        move(source, target)
        if again:
            DiskStore(layout).put_blob(b"code")

    monkeypatch.setattr(quarantine_module, "move_aside", late)
    with pytest.raises(CorruptEntry):
        store.read_blob(digest)
    assert store.read_blob(digest) == b"code"
    assert list(layout.quarantine_folder.iterdir()) == []
    assert path.stat().st_nlink == 1
