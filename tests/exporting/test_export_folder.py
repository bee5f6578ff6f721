"""The folder of an export is replaced as a whole, and one that holds files of users is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gearcache.exporting.export_folder import check_place
from gearcache.exporting.export_manifest import MANIFEST
from tests.exporting.exports import contents, export


def test_a_second_export_takes_the_place_of_the_first(tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(target, "one", "net.air", "weight_of_one", "rank_0/dynamo.pbtxt")
    target.chmod(0o755)
    export(target, "two", "net.air", "weight_of_two")
    assert contents(target) == {"net.air": "two", "weight_of_two": "two"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "something was left beside the export"
    assert sorted(path.name for path in target.iterdir()) == [MANIFEST, "net.air", "weight_of_two"]
    assert target.stat().st_mode & 0o777 == 0o755


def test_a_folder_with_a_file_of_the_user_is_refused_unless_it_may_be_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(target, "one")
    (target / "offline_module.om").write_text("made by ATC")
    before = contents(target)
    with pytest.raises(FileExistsError, match=r"offline_module\.om` is not from .*replace the whole .* overwrite=True"):
        export(target, "two")
    assert contents(target) == before
    export(target, "three", overwrite=True)
    assert contents(target) == {"dynamo.pbtxt": "three", "net.air": "three"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("mine", "exported"),
    [
        ("net.air", "net.air"),
        ("rank_0", "rank_0/a"),
        ("a/b", "a"),
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


def test_what_a_user_has_filled_in_is_not_replaced(tmp_path: Path) -> None:
    target, name = tmp_path / "out", "model_relation_config.json"
    export(target, "template", name)
    (target / name).write_text("node 1")
    with pytest.raises(FileExistsError, match=r"model_relation_config\.json` was edited since it was exported"):
        export(target, "template", name)
    assert contents(target) == {name: "node 1"}


def test_the_export_of_another_rank_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(target, "one", "net0.air", rank=0)
    export(target, "two", "net0.air", rank=0)
    with pytest.raises(FileExistsError, match="out` holds the export of rank 0"):
        export(target, "three", "net1.air", rank=1)
    assert contents(target) == {"net0.air": "two"}


def test_a_list_that_cannot_be_read_makes_no_file_ours(tmp_path: Path) -> None:
    export(tmp_path / "out", "one")
    for text in ("", "[]", '{"version": 1, "files": {}}', '{"version": 2, "files": 3, "ranks": []}'):
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
