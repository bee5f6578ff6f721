"""What a user installs: wheel and sdist hold the real files of all layers."""

from __future__ import annotations

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

import gearcache
from tests.support.source_tree import LAYERS, PACKAGE, ROOT, layer_files

BUILD_INPUTS = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.cfg", "setup.py", "src", *LAYERS)


def expected_files() -> dict[str, bytes]:
    """Name inside the package and content of every file that must be installed."""
    files = {f"gearcache/{path}": ROOT / path for layer in LAYERS for path in layer_files(layer)}
    files |= {path.relative_to("src").as_posix(): ROOT / path for path in layer_files("root")}
    files["gearcache/guards/watch/_watched.pyi"] = ROOT / "guards" / "watch" / "_watched.pyi"
    files["gearcache/py.typed"] = PACKAGE / "py.typed"
    files["gearcache/ge_cache/inductor/exports.map"] = ROOT / "ge_cache" / "inductor" / "exports.map"
    files["gearcache/include/gearcache_package.h"] = PACKAGE / "include" / "gearcache_package.h"
    return {name: path.read_bytes() for name, path in files.items()}


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of the present tree, and the wheel built from this sdist."""
    tree, output = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in BUILD_INPUTS:
        source = ROOT / name
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
            shutil.copytree(source, tree / name, symlinks=True, ignore=ignore)
        elif source.exists():
            shutil.copy2(source, tree / name)
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


def test_the_sdist_holds_real_files(distributions: Path) -> None:
    (path,) = distributions.glob("*.tar.gz")
    held: dict[str, bytes] = {}
    with tarfile.open(path) as archive:
        assert not [item.name for item in archive if item.issym() or item.islnk()]
        for item in archive:
            _, _, name = item.name.partition("/src/")
            content = archive.extractfile(item)
            if name.startswith("gearcache/") and content is not None:
                held[name] = content.read()
    source = "gearcache/guards/watch/_watched.c"
    assert held == expected_files() | {source: (ROOT / "guards" / "watch" / "_watched.c").read_bytes()}


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


def test_the_version_is_that_of_the_package(wheel: Path) -> None:
    assert metadata(wheel)["Version"] == gearcache.__version__


def test_the_license_travels_along(wheel: Path) -> None:
    assert metadata(wheel)["License-File"] == "LICENSE"
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/LICENSE")]
        assert archive.read(name) == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("layer", LAYERS)
def test_the_layers_are_relative_links(layer: str) -> None:
    assert (PACKAGE / layer).readlink() == Path("..", "..", layer)
