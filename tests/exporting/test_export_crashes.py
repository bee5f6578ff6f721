"""A kill at any moment, other processes and late writers: the old export or the new one, and no file of a user lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from gearcache.exporting import export_folder
from gearcache.exporting.export_folder import NEW, work_folder
from gearcache.exporting.export_manifest import MANIFEST
from tests.exporting.exports import contents, export
from tests.support.relaunch import run_python
from tests.support.sampled import sampled

#: The child does only what it is told, and no thread of pytest holds a lock of ours.
FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@pytest.mark.parametrize("way", sampled(["exchange", "renames"], ["exchange"]))
def test_a_kill_at_any_moment_leaves_the_old_export_or_the_new_one(tmp_path: Path, way: str) -> None:
    found = run_python("from tests.exporting.killed import replaced; replaced()", str(tmp_path), way, has_torch=False)
    assert set(found["seen"]) == {"old", "new"}
    assert found["kills"] > 25
    has_gaps = found["moments without"] > 0
    assert has_gaps == (way == "renames"), "without an exchange there are moments without a folder, and no others"


def test_a_kill_in_a_first_export_leaves_nothing_or_all(tmp_path: Path) -> None:
    found = run_python("from tests.exporting.killed import first; first()", str(tmp_path), has_torch=False)
    assert found["kills"] > 20


def test_a_leftover_of_the_living_is_not_touched(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with work_folder(target) as held:
        (held / NEW / "half").write_text("being written")
        export(target, "two")
        assert (held / NEW / "half").exists()
    (tmp_path / ".out.gearcache-export-notes.txt").mkdir()
    (tmp_path / ".outer.gearcache-export-12345678").mkdir()
    export(target, "three")
    assert len(list(tmp_path.iterdir())) == 3
    assert set(contents(target).values()) == {"three"}


def test_a_file_that_came_while_the_folder_was_replaced_is_not_deleted(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target, put = tmp_path / "out", export_folder.put_in_place
    export(target, "one")

    def meanwhile(new: Path, place: Path, aside: Path) -> None:
        (place / "late.om").write_text("late")
        put(new, place, aside)

    with monkeypatch.context() as patch:
        patch.setattr(export_folder, "put_in_place", meanwhile)
        with caplog.at_level("WARNING", "gearcache"):
            export(target, "two")
    assert contents(target) == {"dynamo.pbtxt": "two", "net.air": "two"}
    (left,) = [path for path in tmp_path.iterdir() if path.name != "out"]
    assert [path.read_text() for path in left.rglob("late.om")] == ["late"]
    assert f"`{left}` was left there" in caplog.text
    assert "late.om` is not from an earlier" in caplog.text
    export(target, "three")
    assert [path.read_text() for path in left.rglob("late.om")] == ["late"]


def export_often(target: Path, name: str) -> None:
    for turn in range(20):
        export(target, f"{name}-{turn}", "dynamo.pbtxt", "net.air", f"weight_of_{name}")


def read_at_once(folder: Path) -> dict[str, str] | None:
    """Read all files of what lies there now; None when it was taken apart meanwhile."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(descriptor) as entries:
            names = [entry.name for entry in entries if entry.name != MANIFEST]
        found = {}
        for name in names:
            file = os.open(name, os.O_RDONLY, dir_fd=descriptor)
            with os.fdopen(file) as opened:
                found[name] = opened.read()
        listed = json.loads((folder / MANIFEST).read_text())["files"]
        return found if set(names) >= {"dynamo.pbtxt", "net.air"} and len(listed) == 3 else None
    except FileNotFoundError:
        return None
    finally:
        os.close(descriptor)


@FORKS
def test_processes_that_export_into_one_folder_each_leave_it_whole(tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(target, "first", "dynamo.pbtxt", "net.air", "weight_of_first")
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=export_often, args=(target, name)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    seen = set()
    deadline = time.monotonic() + 60
    while any(writer.is_alive() for writer in writers) and time.monotonic() < deadline:
        found = read_at_once(target)
        if found is not None:
            (content,) = set(found.values())
            assert f"weight_of_{content.partition('-')[0]}" in found
            assert len(found) == 3
            seen.add(content)
        time.sleep(0.001)
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert len(seen) > 5
    assert set(contents(target)) > {"dynamo.pbtxt", "net.air"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
