"""What a user installs: the wheel holds real files of all layers, and the sdist all of the repository."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import gearcache
from gearcache.torch_release import TESTED, is_tested
from tests.support.source_tree import LAYERS, PACKAGE, ROOT, layer_files

#: What the package holds beside its modules.
DATA = (
    "py.typed",
    "torch_parameters.txt",
    "guards/watch/_watched.pyi",
    "ge_cache/inductor/exports.map",
    "ge_cache/inductor/include/regex",
    "include/gearcache_package.h",
    "reporting/page.css",
    "reporting/page.html.jinja",
)

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the files are those of a clone")


def repository_files() -> list[str]:
    """The files of a clone and those that are not committed yet; links are not followed."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


def expected_files() -> dict[str, bytes]:
    """Name inside the package and content of every file that must be installed."""
    files = {f"gearcache/{path}": ROOT / path for layer in LAYERS for path in layer_files(layer)}
    files |= {path.relative_to("src").as_posix(): ROOT / path for path in layer_files("root")}
    files |= {f"gearcache/{name}": PACKAGE / name for name in DATA}
    return {name: path.read_bytes() for name, path in files.items()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel is made of: the files that it holds but for the compiled one, the metadata, the list of an sdist."""
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "setup.py", "egg_info", "--egg-base", str(folder)]
    command += ["build_py", "--build-lib", str(folder / "library")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def metadata(built: Path) -> Message:
    return message_from_string((built / "gearcache.egg-info" / "PKG-INFO").read_text(encoding="utf-8"))


def test_the_wheel_holds_real_files_and_nothing_else(built: Path) -> None:
    library = built / "library"
    held = {path.relative_to(library).as_posix(): path for path in library.rglob("*") if not path.is_dir()}
    assert not [name for name, path in held.items() if path.is_symlink()]
    assert {name: path.read_bytes() for name, path in held.items()} == expected_files()


def test_the_sdist_holds_every_file_of_the_repository(built: Path) -> None:
    listed = (built / "gearcache.egg-info" / "SOURCES.txt").read_text(encoding="utf-8").splitlines()
    wanted = {
        f"src/gearcache/{name}" if name.partition("/")[0] in LAYERS else name
        for name in repository_files()
        if not (ROOT / name).is_symlink()
    }
    assert {name for name in listed if ".egg-info/" not in name} == wanted


@pytest.mark.slow
@pytest.mark.thorough  # the tests above compare what it is made of
def test_a_wheel_that_is_built_from_the_sdist_has_the_compiled_file_too(tmp_path: Path) -> None:
    tree, output = tmp_path / "tree", tmp_path / "dist"
    for name in repository_files():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), str(tree)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,) = output.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert not [item.name for item in archive if item.issym() or item.islnk()]
    (wheel,) = output.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in archive.namelist())
    (extension,) = names - expected_files().keys()
    assert re.fullmatch(r"gearcache/guards/watch/_watched\..*\.so", extension)
    assert expected_files().keys() <= names


def test_torch_is_an_extra_which_admits_what_is_tested(metadata: Message) -> None:
    """As a requirement it would have pip exchange the torch that is there."""
    needs = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    torch = [need for need in needs if need.name == "torch"]
    assert not [need for need in torch if need.marker is None or need.marker.evaluate({"extra": ""})]
    (extra,) = [need for need in torch if need.marker is not None and need.marker.evaluate({"extra": "torch"})]
    assert all(extra.specifier.contains(f"{major}.{minor}.0") for major, minor in TESTED)
    others = {(major, minor + 1) for major, minor in TESTED} - set(TESTED)
    assert not any(extra.specifier.contains(f"{major}.{minor}.0") for major, minor in others)
    (made,) = re.findall(r"(?m)^TORCH \?= (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert extra.specifier.contains(made)
    assert is_tested(made)
    with_torch = [need for need in needs if need.marker is not None and need.marker.evaluate({"extra": "torch"})]
    assert sorted(need.name for need in with_torch) == ["numpy", "torch"], "without numpy importing torch warns"


def test_the_package_page_has_the_version_and_no_link_that_leads_nowhere(metadata: Message) -> None:
    assert metadata["Version"] == gearcache.__version__
    page = str(metadata.get_payload())
    assert set(re.findall(r"\]\(([^)]*)\)", page)) == set()
    assert "[guide](docs/guide.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "guide (`docs/guide.md`)" in page


def test_an_address_of_the_files_makes_links_absolute() -> None:
    setup = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
    text = "![bars](docs/timeline.svg) [guide](docs/guide.md#gears) [web](https://a.example/b) [up](#top)"
    assert setup["page"](text, "https://a.example/main/") == (
        "![bars](https://a.example/main/docs/timeline.svg) [guide](https://a.example/main/docs/guide.md#gears) "
        "[web](https://a.example/b) [up](#top)"
    )


def test_the_layers_are_relative_links() -> None:
    for layer in LAYERS:
        assert (PACKAGE / layer).readlink() == Path("..", "..", layer)
