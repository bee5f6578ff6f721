"""The tests have the rooms of the package: from a module to its tests and back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.support.source_tree import LAYERS, PACKAGE, ROOT, place_of

TESTS = ROOT / "tests"
#: Rooms that are none of the package: what only the whole of it does, methods in two processes, the project around it,
#: and the emulated device.
WHOLE = {"product", "cases", "project", "npu"}
#: What tests use.
HELPERS = {"support", "scenarios", "projects"}
#: Folders of the package that are tested on the emulated device, those of a header, and those of one library each.
ELSEWHERE = {"compat": "npu", "include": "exporting", "ge_cache/inductor/include": "ge_cache/inductor"}
ELSEWHERE |= {f"integrations/{name}": "integrations" for name in ("ray", "sentence_transformers", "transformers")}


def package_folders() -> set[str]:
    """Every folder of the package, as it is named below `gearcache`."""
    own = [path for path in PACKAGE.iterdir() if path.is_dir() and path.name not in LAYERS]
    folders = [path for room in own for path in (room, *room.rglob("*")) if path.is_dir()]
    found = {str(path.relative_to(PACKAGE)) for path in folders}
    for layer in LAYERS:
        root = place_of(Path(layer))
        found |= {str(path.relative_to(root.parent)) for path in (root, *root.rglob("*")) if path.is_dir()}
    return {name for name in found if "__pycache__" not in name}


def files_of_tests() -> list[Path]:
    return [path for path in TESTS.rglob("test_*.py") if path.relative_to(TESTS).parts[0] not in HELPERS]


def test_every_room_of_the_tests_is_one_of_the_package() -> None:
    rooms = {str(path.parent.relative_to(TESTS)) for path in files_of_tests()} - {"."}
    assert {room for room in rooms if room not in WHOLE} <= package_folders()


def test_every_folder_of_the_package_has_a_room_with_tests() -> None:
    rooms = {str(path.parent.relative_to(TESTS)) for path in files_of_tests()}
    wanted = {ELSEWHERE.get(folder, folder) for folder in package_folders()}
    assert wanted <= rooms, f"without tests: {sorted(wanted - rooms)}"


def test_no_two_files_of_tests_have_one_name() -> None:
    counts = Counter(path.name for path in files_of_tests())
    assert [name for name, count in counts.items() if count > 1] == []


def test_every_file_of_tests_says_what_it_tests() -> None:
    silent = [path for path in files_of_tests() if not path.read_text(encoding="utf-8").startswith('"""')]
    assert [str(path.relative_to(ROOT)) for path in silent] == []


def test_helpers_hold_no_tests() -> None:
    assert [path for name in HELPERS for path in (TESTS / name).rglob("test_*.py")] == []
