"""A kill at any moment, and other processes: an export is whole, and the one before is there or aside."""

from __future__ import annotations

import multiprocessing
from contextlib import suppress
from pathlib import Path

import pytest

from tests.exporting.exports import contents, export
from tests.support.relaunch import run_python


def test_a_kill_at_any_moment_leaves_the_old_export_or_the_new_one(tmp_path: Path) -> None:
    found = run_python("from tests.exporting.killed import replaced; replaced()", str(tmp_path), has_torch=False)
    assert set(found["seen"]) == {"none", "old", "new"}
    assert found["kills"] > 20


def export_often(target: Path, name: str) -> None:
    for turn in range(20):
        with suppress(OSError):  # the other process was faster
            export(target, f"{name}-{turn}", "dynamo.pbtxt", "net.air", f"weight_of_{name}", overwrite=True)


#: The child does only what it is told, and no thread of pytest holds a lock of ours.
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_processes_that_export_into_one_folder_leave_one_export_whole(tmp_path: Path) -> None:
    target = tmp_path / "out"
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=export_often, args=(target, name)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    (content,) = set(contents(target).values())
    assert set(contents(target)) == {"dynamo.pbtxt", "net.air", f"weight_of_{content.partition('-')[0]}"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
