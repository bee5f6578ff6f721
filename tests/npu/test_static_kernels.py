"""Static kernels of an aclgraph: made once, kept with the entry, never taken by another graph."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from gearcache.ge_cache.npu.compiled_graphs import SUMS, is_sealed
from gearcache.ge_cache.npu.static_kernels import kernel_folder
from tests.npu import static_kernels
from tests.npu.forked_ranks import run_ranks

MADE = ["note", "compile", "install", "reselect"]
FOUND = ["install", "reselect"]


@pytest.fixture
def cann(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in static_kernels.install_compiler(tmp_path / "cann").items():
        monkeypatch.setenv(name, value)
    return tmp_path


def run(
    root: Path,
    *,
    factor: float = 2.0,
    mode: str = "npugraph_ex",
    rows: tuple[int, ...] = (2,),
    exit_code: int = 0,
) -> tuple[dict[str, Any], list[str]]:
    """Serve in a process of its own; return its report and the lines of CANN's log that it added."""
    before = len(static_kernels.log())
    arguments = [str(root), str(factor), mode, json.dumps(rows)]
    (report,) = run_ranks("tests.npu.summing", [arguments], root, exit_code=exit_code)
    return report, [line.split()[0] for line in static_kernels.log()[before:]]


def folders(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("static_kernels/*") if path.is_dir())


def test_what_the_first_process_compiled_is_installed_by_a_relaunch_and_by_no_other_model(cann: Path) -> None:
    (cann / "far").mkdir()
    root = cann / "link"  # npugraph_ex itself refuses a folder with a link in its path
    root.symlink_to(cann / "far")
    cold, did = run(root, rows=(2, 4))
    assert cold["wrong"] == []
    assert did == MADE * 2, "one package for each gear"
    kept = folders(Path(cold["path"]).parent)
    assert len(kept) == 2
    assert all(is_sealed(folder) for folder in kept)
    names = {path.suffix for folder in kept for path in folder.rglob("*") if path.is_file()}
    assert names == {".run", ".msgpack"}, "nothing is kept but what a relaunch reads"
    assert not list(root.glob("static_kernel*")), "nothing lies in the working folder"
    warm, did = run(root, rows=(2, 4))
    assert (warm["wrong"], warm["traces"]) == ([], 0)
    assert did == FOUND * 2
    changed, did = run(root, factor=3.0)
    assert changed["wrong"] == []
    assert did == MADE
    assert len(folders(cann / "far")) == 3
    for package in (cann / "far").rglob("cache/**/*.run"):
        package.write_text(package.read_text()[:-5])
    damaged, did = run(root, factor=3.0)
    assert damaged["wrong"] == []
    assert did == MADE, "a damaged package is dropped and compiled again"


def test_what_a_dead_process_left_is_never_installed(cann: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(static_kernels.KILL_AT, "install")
    assert run(cann, exit_code=-signal.SIGKILL)[0] == {}
    monkeypatch.delenv(static_kernels.KILL_AT)
    (left,) = folders(cann)
    packages = list(left.rglob("*.run"))
    assert packages
    assert not is_sealed(left)
    for package in packages:
        package.write_text('#!/bin/sh\necho "install-of-another" >> "$EMULATED_CANN_LOG"\n')
        package.chmod(0o700)
    report, did = run(cann)
    assert report["wrong"] == []
    assert did == MADE


def test_a_compile_that_failed_is_tried_again(cann: Path) -> None:
    """torchair takes a folder without a package for a failure, and never compiles there again."""
    mode = "reduce-overhead"
    compiler = cann / "cann" / "op_compiler"
    text = compiler.read_text()
    compiler.write_text("#!/bin/sh\nexit 1\n")
    report, did = run(cann, mode=mode)
    assert report["wrong"] == []
    assert did == ["note"]
    compiler.write_text(text)
    assert run(cann, mode=mode)[1] == MADE
    assert run(cann, mode=mode)[1] == FOUND


def test_who_finds_another_process_compiling_does_so_in_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gearcache.ge_cache.npu.static_kernels.LOCK_TIMEOUT", 0.05)
    with kernel_folder(tmp_path, "key") as first:
        (first / "a.run").write_text("a")
        (first / "kernel_meta").mkdir()
        (first / "kernel_meta" / "a.json").write_text("{}")
        with kernel_folder(tmp_path, "key") as second:
            assert tmp_path not in second.parents
        assert not second.exists()
    assert is_sealed(tmp_path / "key")
    assert sorted(path.name for path in (tmp_path / "key").iterdir()) == ["a.run", SUMS]
    (tmp_path / "key" / "another.run").touch()
    assert not is_sealed(tmp_path / "key"), "a package too many would be installed"
