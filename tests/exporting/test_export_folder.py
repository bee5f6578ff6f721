"""The folder of an export is replaced as a whole, at any moment and by any number of processes; files of users stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gearcache.exporting import exchange, export_folder
from gearcache.exporting.export_folder import NEW, check_place, publish, work_folder
from gearcache.exporting.export_manifest import MANIFEST

Owners = dict[str, int | None]


def export(target: Path, content: str, *names: str, rank: int | None = None, world: int = 1) -> None:
    """Export files of one content."""
    with work_folder(target) as work:
        owners: Owners = {}
        for name in names or ("dynamo.pbtxt", "net.air"):
            path = work / NEW / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
            owners[name] = rank
        publish(work, target, owners, world)


def contents(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


@pytest.fixture(params=["exchange", "renames"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With `renameat2`, and on a system without it."""
    if request.param == "renames":
        monkeypatch.setattr(exchange, "exchange", lambda first, second: False)
    return str(request.param)


@pytest.fixture(params=["links", "copies"])
def carried(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With hard links, and on a file system without them."""
    if request.param == "copies":

        def refuse(*arguments: object, **keywords: object) -> None:
            raise PermissionError("no hard links")

        monkeypatch.setattr(os, "link", refuse)
    return str(request.param)


def test_a_second_export_takes_the_place_of_the_first(tmp_path: Path, way: str) -> None:
    target = tmp_path / "out"
    export(target, "one", "net.air", "weight_of_one", "rank_0/dynamo.pbtxt")
    target.chmod(0o755)
    export(target, "two", "net.air", "weight_of_two")
    assert contents(target) == {"net.air": "two", "weight_of_two": "two"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "something was left beside the export"
    assert sorted(path.name for path in target.iterdir()) == [MANIFEST, "net.air", "weight_of_two"]
    assert target.stat().st_mode & 0o777 == 0o755


def test_files_of_the_user_stay(tmp_path: Path, way: str, carried: str) -> None:
    target = tmp_path / "out"
    export(target, "one")
    (target / "offline_module.om").write_text("made by ATC")
    (target / "notes/deep").mkdir(parents=True)
    (target / "notes/deep/of.txt").write_text("mine")
    (target / "link").symlink_to("net.air")
    (target / "empty").mkdir()
    export(target, "two")
    export(target, "three", "dynamo.pbtxt")
    expected = {"offline_module.om": "made by ATC", "notes/deep/of.txt": "mine", "dynamo.pbtxt": "three"}
    assert contents(target) == expected
    assert (target / "link").is_symlink()
    assert (target / "empty").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("mine", "exported"),
    [
        ("net.air", "net.air"),
        ("numa_config.json", "numa_config.json"),
        ("rank_0", "rank_0/a"),
        ("a/b", "a"),
        ("a/", "a"),
    ],
)
def test_a_file_that_no_export_wrote_is_never_replaced(tmp_path: Path, mine: str, exported: str) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / mine).parent.mkdir(exist_ok=True)
    (target / mine).mkdir() if mine.endswith("/") else (target / mine).write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FileExistsError, match=rf"out/{mine.rstrip('/')}` is not from an earlier .*another export_path"):
        export(target, "new", exported)
    assert sorted(tmp_path.rglob("*")) == before
    assert mine.endswith("/") or (target / mine).read_text() == "mine"


def test_what_a_user_has_filled_in_stays_while_its_template_is_the_same(tmp_path: Path, carried: str) -> None:
    target, name = tmp_path / "out", "model_relation_config.json"
    export(target, "template", name)
    (target / name).write_text("node 1")
    for _ in range(2):
        export(target, "template", name)
        assert contents(target) == {name: "node 1"}
    with pytest.raises(FileExistsError, match=r"model_relation_config\.json` was edited since it was exported"):
        export(target, "another template", name)
    assert contents(target) == {name: "node 1"}
    export(target, "a graph without it", "net.air")
    assert contents(target) == {name: "node 1", "net.air": "a graph without it"}


def test_files_of_other_ranks_stay_and_those_of_a_larger_job_go(tmp_path: Path) -> None:
    target = tmp_path / "out"
    for rank in range(3):
        export(target, "one", f"net{rank}.air", f"rank_{rank}/dynamo.pbtxt", rank=rank, world=3)
    assert len(contents(target)) == 6
    export(target, "two", "net0.air", rank=0, world=2)
    assert contents(target) == {"net0.air": "two", "net1.air": "one", "rank_1/dynamo.pbtxt": "one"}
    export(target, "three", "net.air")
    assert contents(target) == {"net.air": "three"}


def test_a_list_that_cannot_be_read_makes_no_file_ours(tmp_path: Path) -> None:
    export(tmp_path / "out", "one")
    for text in ("", "[]", '{"version": 2, "files": {}}', '{"version": 1, "files": {"net.air": 1}}'):
        (tmp_path / "out" / MANIFEST).write_text(text)
        with pytest.raises(FileExistsError, match="is not from an earlier"):
            export(tmp_path / "out", "two")
    assert set(contents(tmp_path / "out").values()) == {"one"}


def test_places_that_cannot_be_replaced_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place in (tmp_path, tmp_path.parent, Path("/")):
        with pytest.raises(ValueError, match=f"export_path `{place}` holds the working folder"):
            check_place(place)
    with pytest.raises(ValueError, match="`/proc` is a mount point; give a folder below it"):
        check_place(Path("/proc"))
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="give another export_path"):
        check_place(tmp_path / "file")


# -- crashes ---------------------------------------------------------------------------------------------------

OLD = {"dynamo.pbtxt": "old", "net.air": "old", "weight_of_old": "old"}
FRESH = {"dynamo.pbtxt": "new", "net.air": "new", "weight_of_new": "new"}
MINE = {"offline_module.om": "mine", "notes/of.txt": "mine", "numa_config.json": "filled in"}


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


def test_a_kill_at_any_moment_leaves_the_old_export_or_the_new_one(tmp_path: Path, way: str, carried: str) -> None:
    moments, seen, count = 0, set(), 0
    while True:
        root = tmp_path / str(count)
        target = root / "out"
        export(target, "old", *OLD, "numa_config.json")
        (target / "notes").mkdir()
        for name, text in MINE.items():
            (target / name).write_text(text)

        def work(target: Path = target) -> None:
            with work_folder(target) as folder:
                owners: Owners = dict.fromkeys((*FRESH, "numa_config.json"))
                for name in owners:
                    (folder / NEW / name).write_text(FRESH.get(name, "old"))
                publish(folder, target, owners, 1)

        was_killed = killed_after(count, work)
        if target.exists() or way == "exchange":
            found = contents(target)
            assert found in (OLD | MINE, FRESH | MINE), f"killed at change {count}: {found}"
            seen.add(found["net.air"])
        else:
            moments += 1
        with work_folder(target):  # the next export cleans up before it begins
            assert len(list(root.iterdir())) == 2
            assert contents(target) in (OLD | MINE, FRESH | MINE)
        assert [path.name for path in root.iterdir()] == ["out"]
        if not was_killed:
            break
        count += 1
    assert seen == {"old", "new"}
    assert count > 40
    assert (moments > 0) == (way == "renames"), "without an exchange there are moments without a folder, and no others"


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


def test_a_file_that_came_while_the_folder_was_replaced_goes_into_the_new_one(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target, put = tmp_path / "out", export_folder.put_in_place
    export(target, "one")

    def meanwhile(new: Path, place: Path, aside: Path) -> None:
        (place / "late.om").write_text("late")
        (place / "net.air").unlink()
        (place / "net.air").mkdir()
        (place / "net.air/odd").write_text("odd")
        put(new, place, aside)

    with monkeypatch.context() as patch:
        patch.setattr(export_folder, "put_in_place", meanwhile)
        with caplog.at_level("WARNING", "gearcache"):
            export(target, "two")
    assert contents(target) == {"dynamo.pbtxt": "two", "net.air": "two", "late.om": "late"}
    (left,) = [path for path in tmp_path.iterdir() if path.name != "out"]
    assert [path.read_text() for path in left.rglob("odd")] == ["odd"]
    assert f"`{left}` holds `net.air/odd`, which no dynamo_export wrote" in caplog.text


# -- several at once -------------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from tests.exporting.test_export_folder import export
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
        return found if set(names) >= {"dynamo.pbtxt", "net.air", "mine.om"} and len(listed) == 3 else None
    except FileNotFoundError:
        return None
    finally:
        os.close(descriptor)


def test_processes_that_export_into_one_folder_each_leave_it_whole(tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(target, "first", "dynamo.pbtxt", "net.air", "weight_of_first")
    (target / "mine.om").write_text("mine")
    command = [sys.executable, "-c", WRITER, str(target)]
    writers = [subprocess.Popen([*command, name], stderr=subprocess.PIPE, text=True) for name in ("a", "b")]
    seen = set()
    deadline = time.monotonic() + 60
    while any(writer.poll() is None for writer in writers) and time.monotonic() < deadline:
        found = read_at_once(target)
        if found is not None:
            assert found.pop("mine.om") == "mine"
            (content,) = set(found.values())
            assert f"weight_of_{content.partition('-')[0]}" in found
            assert len(found) == 3
            seen.add(content)
    for writer in writers:
        assert writer.communicate(timeout=60)[1] == ""
        assert writer.returncode == 0
    assert len(seen) > 5
    assert set(contents(target)) > {"mine.om", "net.air"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
