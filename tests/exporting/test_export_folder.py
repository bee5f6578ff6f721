"""The folder of an export is replaced as a whole, and only by an export that may overwrite it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gearcache.exporting.export_folder import check_place
from tests.exporting.exports import contents, export


def test_an_overwriting_export_takes_the_place_of_the_whole_folder(tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(target, "one", "net.air", "weight_of_one", "rank_0/dynamo.pbtxt")
    target.chmod(0o755)
    export(target, "two", "net.air", "weight_of_two", overwrite=True)
    assert contents(target) == {"net.air": "two", "weight_of_two": "two"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "something was left beside the export"
    assert target.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("held", ["net.air", "offline_module.om", "rank_0/"])
def test_a_folder_with_any_content_is_refused(tmp_path: Path, held: str) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / held).mkdir() if held.endswith("/") else (target / held).write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FileExistsError, match=rf"out` holds `{held.rstrip('/')}`; move it away, .* overwrite=True"):
        export(target, "new")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    export(target, "new", "a/b")
    assert contents(target) == {"a/b": "new"}


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
