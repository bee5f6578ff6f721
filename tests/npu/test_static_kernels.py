"""Static kernels of an aclgraph: made once, kept with the entry, never taken by another graph."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gearcache.ge_cache.npu.compiled_graphs import SUMS, is_sealed
from gearcache.ge_cache.npu.static_kernels import kernel_folder
from tests.npu import static_kernels
from tests.support.relaunch import ROOT
from tests.support.sampled import sampled

MODEL = """
import torch
class Model(torch.nn.Module):
    def step(self, total, x):
        total.add_(x)
        return (total * FACTOR).sum(-1)
"""
#: A process that serves a method with static kernels: prints what differs from eager, and what happened.
PROGRAM = """
import importlib.util, json, sys
from pathlib import Path
from tests.npu.device import install
install()
import torch
import gearcache

root, factor, mode, rows = Path(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
source = root / f"model_{factor}.py"
source.write_text(MODEL.replace("FACTOR", factor))
spec = importlib.util.spec_from_file_location("model", source)
module = sys.modules["model"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
if mode == "npugraph_ex":
    config = gearcache.CompilerConfig(strict=True, mode=mode, options={"static_kernel_compile": True})
else:
    import torchair
    own = torchair.CompilerConfig()
    own.mode = mode
    own.experimental_config.aclgraph._aclnn_static_shape_kernel = True
    config = gearcache.CompilerConfig(strict=True, torchair=own)
model = module.Model()
gears = None if "--dynamic" in sys.argv else {"x": {0: [2, 4]}, "total": {0: [2, 4]}}
cached = gearcache.cache_compile(model.step, config=config, gears=gears, cache_dir=root / "cache")
wrong = []
for number in rows:
    total, other = torch.zeros(number, 3).to("npu"), torch.zeros(number, 3).to("npu")
    for call in range(2):
        x = torch.randn(number, 3).to("npu")
        found, expected = cached(total, x), model.step(other, x)
        if not torch.allclose(found.cpu(), expected.cpu()) or not torch.allclose(total.cpu(), other.cpu()):
            wrong.append([number, call])
print(json.dumps({"wrong": wrong, "traces": cached.stats.traces, "path": cached.entry_path}))
"""


@pytest.fixture
def cann(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in static_kernels.install_compiler(tmp_path / "cann").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    return tmp_path


def run(
    root: Path, *, factor: float = 2.0, mode: str = "npugraph_ex", rows: tuple[int, ...] = (2, 4), dynamic: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """Serve in a process of its own; return its report and the lines of CANN's log that it added."""
    before = len(static_kernels.log())
    command = [sys.executable, "-c", f"MODEL = {MODEL!r}\n{PROGRAM}", str(root), str(factor), mode, json.dumps(rows)]
    command += ["--dynamic"] * dynamic
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=500, check=False)
    added = [line.split()[0] for line in static_kernels.log()[before:]]
    if done.returncode == -signal.SIGKILL:
        return {}, added
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), added


MADE = ["note", "compile", "install", "reselect"]
FOUND = ["install", "reselect"]


def folders(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("static_kernels/*") if path.is_dir())


@pytest.mark.parametrize("mode", sampled(["npugraph_ex", "reduce-overhead"], ["npugraph_ex"]))
def test_a_relaunch_installs_what_the_first_process_compiled(cann: Path, mode: str) -> None:
    cold, did = run(cann, mode=mode)
    assert cold["wrong"] == []
    assert did == MADE * 2, "one package for each gear"
    kept = folders(Path(cold["path"]).parent)
    assert len(kept) == 2
    assert all(is_sealed(folder) for folder in kept)
    names = {path.suffix for folder in kept for path in folder.rglob("*") if path.is_file()}
    assert names == {".run", ".msgpack"}, "nothing is kept but what a relaunch reads"
    assert not list(cann.glob("static_kernel*")), "nothing lies in the working folder"
    warm, did = run(cann, mode=mode)
    assert (warm["wrong"], warm["traces"]) == ([], 0)
    assert did == FOUND * 2


def test_a_changed_model_gets_kernels_of_its_own(cann: Path) -> None:
    run(cann, rows=(2,))
    changed, did = run(cann, factor=3.0, rows=(2,))
    assert changed["wrong"] == []
    assert did == MADE
    assert len(folders(cann)) == 2


@pytest.mark.parametrize("stage", ["install", pytest.param("compile", marks=pytest.mark.thorough)])
def test_what_a_dead_process_left_is_never_installed(cann: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    monkeypatch.setenv(static_kernels.KILL_AT, stage)
    assert run(cann, rows=(2,))[0] == {}
    monkeypatch.delenv(static_kernels.KILL_AT)
    (left,) = folders(cann)
    packages = list(left.rglob("*.run"))
    assert packages
    assert not is_sealed(left)
    for package in packages:
        package.write_text('#!/bin/sh\necho "install-of-another" >> "$EMULATED_CANN_LOG"\n')
        package.chmod(0o700)
    report, did = run(cann, rows=(2,))
    assert report["wrong"] == []
    assert did == MADE
    assert run(cann, rows=(2,))[1] == FOUND


def test_a_damaged_package_is_dropped_and_compiled_again(cann: Path) -> None:
    run(cann, rows=(2,))
    (package,) = cann.rglob("cache/**/*.run")
    package.write_text(package.read_text()[:-5])
    report, did = run(cann, rows=(2,))
    assert report["wrong"] == []
    assert did == MADE


@pytest.mark.thorough  # a damaged one, above, is not installed either
def test_a_package_too_many_is_not_installed(cann: Path) -> None:
    run(cann, rows=(2,))
    (package,) = cann.rglob("cache/**/*.run")
    (package.parent / "another.run").write_text('#!/bin/sh\necho "install-of-another" >> "$EMULATED_CANN_LOG"\n')
    (package.parent / "another.run").chmod(0o700)
    assert run(cann, rows=(2,))[1] == MADE


def test_a_compile_that_failed_is_tried_again(cann: Path) -> None:
    """torchair takes a folder without a package for a failure, and never compiles there again."""
    compiler = cann / "cann" / "op_compiler"
    text = compiler.read_text()
    compiler.write_text("#!/bin/sh\nexit 1\n")
    report, did = run(cann, rows=(2,))
    assert report["wrong"] == []
    assert did == ["note"]
    compiler.write_text(text)
    assert run(cann, rows=(2,))[1] == MADE


@pytest.mark.thorough  # `test_served` has dynamic dims, the tests above static kernels
def test_a_graph_with_dynamic_dims_keeps_kernels_by_the_sizes_of_its_first_call(cann: Path) -> None:
    assert run(cann, rows=(3,), dynamic=True)[1] == MADE
    report, did = run(cann, rows=(5,), dynamic=True)
    assert (report["wrong"], report["traces"]) == ([], 0)
    assert did == MADE
    assert run(cann, rows=(3, 5), dynamic=True)[1] == FOUND


@pytest.mark.thorough  # npugraph_ex alone asks for links: it may wait for a release of torch_npu
def test_a_cache_behind_a_link_is_served(cann: Path) -> None:
    """npugraph_ex refuses a folder with a link in its path."""
    (cann / "far").mkdir()
    (cann / "link").symlink_to(cann / "far")
    assert run(cann / "link", rows=(2,))[1] == MADE
    assert run(cann / "link", rows=(2,))[1] == FOUND


def test_where_nothing_can_be_written_kernels_are_compiled_in_a_temporary_folder(tmp_path: Path) -> None:
    root = tmp_path / "file"
    root.write_text("no folder")
    with kernel_folder(root, "key") as folder:
        assert folder.is_dir()
        assert tmp_path not in folder.parents
    assert not folder.exists()


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
