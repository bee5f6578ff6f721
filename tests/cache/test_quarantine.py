from __future__ import annotations

from pathlib import Path

import pytest

from gearcache.cache.layout import Layout
from gearcache.cache.quarantine import quarantine
from gearcache.errors import CorruptEntry


def fail(path: Path) -> None:
    raise CorruptEntry(path, "damaged")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "cache")
    layout.prepare()
    return layout


def test_a_corrupt_file_moves_away_with_its_reason(layout: Layout) -> None:
    bad = layout.blobs_folder / "bad"
    bad.write_bytes(b"bytes")
    quarantine(layout, CorruptEntry(bad, "damaged"), "bad.blob", lambda: fail(bad))
    assert not bad.exists()
    moved, reason = sorted(layout.quarantine_folder.iterdir())
    assert moved.read_bytes() == b"bytes"
    assert reason.name == f"{moved.name}.reason"
    assert reason.read_text() == f"`{bad}` is corrupt: damaged\n"


def test_a_file_that_is_sound_by_now_stays(layout: Layout) -> None:
    good = layout.blobs_folder / "good"
    good.write_bytes(b"bytes")
    quarantine(layout, CorruptEntry(good, "damaged"), "good.blob", lambda: None)
    assert good.exists()
    assert list(layout.quarantine_folder.iterdir()) == []


def test_a_file_that_is_gone_by_now_is_no_fault(layout: Layout) -> None:
    bad = layout.blobs_folder / "bad"
    quarantine(layout, CorruptEntry(bad, "damaged"), "bad.blob", lambda: fail(bad))
    assert list(layout.quarantine_folder.iterdir()) == []


def test_a_cache_that_cannot_be_written_keeps_its_file(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"bytes")
    quarantine(Layout(blocked / "cache"), CorruptEntry(blocked, "damaged"), "bad", lambda: fail(blocked))
    assert blocked.read_bytes() == b"bytes"
