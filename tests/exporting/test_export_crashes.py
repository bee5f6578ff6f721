"""A kill at any moment, other processes and late writers: the old export or the new one, and no file of a user lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gearcache.exporting import export_folder
from gearcache.exporting.export_folder import NEW, work_folder
from gearcache.exporting.export_manifest import MANIFEST
from tests.exporting.exports import contents, export

OLD = {"dynamo.pbtxt": "old", "net.air": "old", "weight_of_old": "old"}
FRESH = {"dynamo.pbtxt": "new", "net.air": "new", "weight_of_new": "new"}
#: The child does only what it is told, and no thread of pytest holds a lock of ours.
FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


def killed_after(count: int, work: Callable[[], None]) -> bool:
    """Fork, and kill the child when it is about to do its n-th change to the disk; whether it came so far."""
    child = os.fork()
    if child == 0:
        left = count

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            if event.startswith(("os.", "shutil.", "open", "ctypes.dlsym", "fcntl.")):
                left -= 1
                if left < 0:
                    os._exit(9)

        sys.addaudithook(hook)
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@FORKS
def test_a_kill_at_any_moment_leaves_the_old_export_or_the_new_one(tmp_path: Path, way: str) -> None:
    moments, seen, count = 0, set(), 0
    while True:
        root = tmp_path / str(count)
        target = root / "out"
        export(target, "old", *OLD)
        was_killed = killed_after(count, lambda target=target: export(target, "new", *FRESH))  # type: ignore[misc]
        if target.exists() or way == "exchange":
            found = contents(target)
            assert found in (OLD, FRESH), f"killed at change {count}: {found}"
            seen.add(found["net.air"])
        else:
            moments += 1
        with work_folder(target):  # the next export cleans up before it begins
            assert len(list(root.iterdir())) == 2
            assert contents(target) in (OLD, FRESH)
        assert [path.name for path in root.iterdir()] == ["out"]
        if not was_killed:
            break
        count += 1
    assert seen == {"old", "new"}
    assert count > 25
    assert (moments > 0) == (way == "renames"), "without an exchange there are moments without a folder, and no others"


@FORKS
def test_a_kill_in_a_first_export_leaves_nothing_or_all(tmp_path: Path) -> None:
    count, was_killed = 0, True
    while was_killed:
        target = tmp_path / str(count) / "out"
        was_killed = killed_after(count, lambda target=target: export(target, "new", *FRESH))  # type: ignore[misc]
        assert not target.exists() or contents(target) == FRESH
        export(target, "new", *FRESH)
        assert [path.name for path in target.parent.iterdir()] == ["out"]
        assert contents(target) == FRESH
        count += 1
    assert count > 20


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


# -- several at once -------------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from tests.exporting.exports import export
for turn in range(40):
    name = f"{sys.argv[2]}-{turn}"
    export(Path(sys.argv[1]), name, "dynamo.pbtxt", "net.air", f"weight_of_{sys.argv[2]}")
"""


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


def test_processes_that_export_into_one_folder_each_leave_it_whole(tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(target, "first", "dynamo.pbtxt", "net.air", "weight_of_first")
    command = [sys.executable, "-c", WRITER, str(target)]
    writers = [subprocess.Popen([*command, name], stderr=subprocess.PIPE, text=True) for name in ("a", "b")]
    seen = set()
    deadline = time.monotonic() + 60
    while any(writer.poll() is None for writer in writers) and time.monotonic() < deadline:
        found = read_at_once(target)
        if found is not None:
            (content,) = set(found.values())
            assert f"weight_of_{content.partition('-')[0]}" in found
            assert len(found) == 3
            seen.add(content)
    for writer in writers:
        assert writer.communicate(timeout=60)[1] == ""
        assert writer.returncode == 0
    assert len(seen) > 5
    assert set(contents(target)) > {"dynamo.pbtxt", "net.air"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
