"""The folder of an export is replaced as a whole, and files of users stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from gearcache.exporting.export_folder import check_place
from gearcache.exporting.export_manifest import MANIFEST
from tests.exporting.exports import contents, export


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
