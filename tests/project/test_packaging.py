"""What a user installs: wheel and sdist hold real files of all layers, and the sdist all of the repository."""

from __future__ import annotations

import re
import runpy
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import gearcache
from gearcache.torch_release import TESTED, is_tested
from tests.support.source_tree import LAYERS, PACKAGE, ROOT, layer_files

#: What the page of a report is made of.
REPORTING = ("page.css", "page.html.jinja")

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
    files["gearcache/guards/watch/_watched.pyi"] = ROOT / "guards" / "watch" / "_watched.pyi"
    files |= {f"gearcache/{name}": PACKAGE / name for name in ("py.typed", "torch_parameters.txt")}
    files["gearcache/ge_cache/inductor/exports.map"] = ROOT / "ge_cache" / "inductor" / "exports.map"
    files["gearcache/ge_cache/inductor/include/regex"] = ROOT / "ge_cache" / "inductor" / "include" / "regex"
    files["gearcache/include/gearcache_package.h"] = PACKAGE / "include" / "gearcache_package.h"
    files |= {f"gearcache/reporting/{name}": PACKAGE / "reporting" / name for name in REPORTING}
    return {name: path.read_bytes() for name, path in files.items()}


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of the present tree, and the wheel built from this sdist."""
    tree, output = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in repository_files():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), str(tree)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert result.returncode == 0, result.stdout + result.stderr
    return output


@pytest.fixture(scope="session")
def wheel(distributions: Path) -> Path:
    (path,) = distributions.glob("*.whl")
    return path


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def test_the_wheel_holds_real_files_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert not [item.filename for item in archive.infolist() if stat.S_ISLNK(item.external_attr >> 16)]
        held = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    (extension,) = [name for name in held if name.endswith(".so")]
    assert extension.startswith("gearcache/guards/watch/_watched.")
    del held[extension]
    assert held == expected_files()


def test_the_sdist_holds_every_file_of_the_repository_and_real_ones(distributions: Path) -> None:
    (path,) = distributions.glob("*.tar.gz")
    held: dict[str, bytes] = {}
    with tarfile.open(path) as archive:
        assert not [item.name for item in archive if item.issym() or item.islnk()]
        names = {item.name.partition("/")[2] for item in archive if item.isfile()}
        for item in archive:
            _, _, name = item.name.partition("/src/")
            content = archive.extractfile(item)
            if name.startswith("gearcache/") and content is not None:
                held[name] = content.read()
    source = "gearcache/guards/watch/_watched.c"
    assert held == expected_files() | {source: (ROOT / "guards" / "watch" / "_watched.c").read_bytes()}
    made = {name for name in names if name in ("PKG-INFO", "setup.cfg") or ".egg-info/" in name}
    wanted = {
        f"src/gearcache/{name}" if name.partition("/")[0] in LAYERS else name
        for name in repository_files()
        if not (ROOT / name).is_symlink()
    }
    assert names - made == wanted - {"setup.cfg"}


def test_torch_is_an_extra_which_admits_what_is_tested(wheel: Path) -> None:
    """As a requirement it would have pip exchange the torch that is there."""
    needs = [Requirement(text) for text in metadata(wheel).get_all("Requires-Dist", [])]
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


def test_the_package_page_has_no_link_that_leads_nowhere(wheel: Path) -> None:
    page = str(metadata(wheel).get_payload())
    assert "gearcache" in page
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
    assert setup["page"](text, "") == " guide (`docs/guide.md#gears`) [web](https://a.example/b) [up](#top)"


def test_the_installed_wheel_is_complete(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    program = (
        "import gearcache, gearcache.cache, gearcache.guards, gearcache.ge_cache\n"
        "print(gearcache.__file__, gearcache.cache.__file__)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    package = tmp_path / "gearcache"
    assert result.stdout.split() == [str(package / "__init__.py"), str(package / "cache" / "__init__.py")]


def test_the_version_is_that_of_the_package_and_the_license_travels_along(wheel: Path) -> None:
    assert metadata(wheel)["Version"] == gearcache.__version__
    assert metadata(wheel)["License-File"] == "LICENSE"
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/LICENSE")]
        assert archive.read(name) == (ROOT / "LICENSE").read_bytes()


def test_the_layers_are_relative_links() -> None:
    for layer in LAYERS:
        assert (PACKAGE / layer).readlink() == Path("..", "..", layer)
