"""`gearcache doctor --ready`: 0 when all that a function calls would be a hit, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.cache.layout import Layout
from gearcache.commands.checks.cache_checks import check_ranks
from tests.scenarios import collectives, prewarmed
from tests.support.commands import DECODE, run, run_json, store
from tests.support.source_tree import ROOT

TARGET = "tests.scenarios.prewarmed:on_meta"


def checks(*arguments: str, code: int) -> dict[str, Any]:
    """What `doctor --ready` says, by name of the method: whether it is ready, and the text."""
    found = run_json("doctor", "--ready", *arguments, code=code)["checks"]
    return {each["name"]: (each["ok"], each["detail"]) for each in found}


def test_ready_is_what_a_load_would_hit(cache_dir: Path) -> None:
    empty = checks(TARGET, code=1)
    assert not cache_dir.exists(), "who asks makes nothing"
    assert empty["Decoder.decode"][0] is False
    gears = ["ids.size(0)=1", "ids.size(0)=2", "ids.size(0)=4"]
    missing = "; ".join([*gears, *(f"{gear}, graph 2" for gear in gears)])
    assert f"0 graphs here, missing: {missing}; because: absent" in empty["Decoder.decode"][1]
    gearcache.prewarm(prewarmed.warm_only)
    assert {name: ok for name, (ok, _) in checks(TARGET, code=1).items()} == {
        "Decoder.decode": False,  # of its two kinds of call one is stored
        "Decoder.score": False,
        "Decoder.unused": None,
    }
    gearcache.prewarm(prewarmed.on_meta)
    assert checks(TARGET, code=0)["Decoder.decode"] == (True, "6 graphs here")


def test_a_damaged_graph_is_not_ready(cache_dir: Path) -> None:
    gearcache.prewarm(prewarmed.warm_only)
    blob = max((cache_dir / "v7" / "blobs").glob("*/*"), key=lambda path: path.stat().st_size)
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(data)
    assert gearcache.prewarm(prewarmed.warm_only, dry_run=True).is_complete, "only its name was looked for"
    ok, text = checks("tests.scenarios.prewarmed:warm_only", code=1)["Decoder.decode"]
    assert (ok, "sha256" in text) == (False, True)


def test_entries_for_another_number_of_threads_say_how_to_have_it(cache_dir: Path) -> None:
    threads = torch.get_num_threads()
    target = "tests.scenarios.prewarmed:warm_only"
    try:
        run("prewarm", target, "--threads", str(threads + 3))
        run("doctor", "--ready", target, "--threads", str(threads + 3))
        torch.set_num_threads(threads)
        told = run("doctor", "--ready", target, code=1).stdout
    finally:
        torch.set_num_threads(threads)
    assert f"`state.threads` is `{threads}`, stored is `{threads + 3}`" in told
    assert f"-> set OMP_NUM_THREADS={threads + 3}, as where it was compiled" in told
    assert "gearcache pull" not in told
    assert "--threads needs --ready" in run("doctor", "--threads", "2", code=2).stderr


#: Runs a command where nothing can be written, as in a container of Kubernetes with `readOnlyRootFilesystem`.
READ_ONLY = """
mount --make-rprivate /
for each in / /tmp; do mount -o remount,bind,ro "$each" 2>/dev/null; done
exec "$0" "$@"
"""
#: The call on `meta` imports Dynamo, which asks for the name of the temporary folder.
DEPLOY = """
import gearcache, torch
model = torch.nn.Linear(4, 4, device="meta")
config = gearcache.CompilerConfig(backend="eager")
cached = gearcache.cache_compile(model.forward, config=config, gears={"input": {0: [1, 2]}})
def build():
    with torch.device("meta"):
        cached(torch.empty(2, 4))
"""


@pytest.mark.thorough  # a process imports Dynamo for it; `test_disk` has caches that cannot be written
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare")
def test_nothing_has_to_be_written_to_be_ready(cache_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "deploy.py").write_text(DEPLOY)
    target = f"{tmp_path / 'deploy.py'}:build"
    run("prewarm", target)
    command = ["unshare", "-Urm", "sh", "-c", READ_ONLY, sys.executable, "-m", "gearcache", "doctor", "--ready", target]
    environ = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False)
    if "unshare" in done.stderr:
        pytest.skip("no read-only root can be made here")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout == "ok    Linear.forward  2 graphs here\n"


def test_where_no_temporary_file_can_be_all_else_is_checked(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    store(cache_dir, DECODE, b"d")
    monkeypatch.setattr("tempfile.gettempdir", refused)
    told = run("doctor", code=1).stdout
    assert "has no place for its files: No usable temporary directory" in told
    assert "-> mount a folder that can be written at /tmp (in Kubernetes an `emptyDir`)" in told
    assert "ok    entries" in told


def test_of_a_job_it_is_the_rank_of_the_environment(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = "tests.scenarios.collectives:build"
    gearcache.prewarm(collectives.build, world_size=2, ranks=[1])
    (check,) = check_ranks({}, Layout(cache_dir))
    assert (check.ok, check.detail) == (None, "jobs of several ranks have stored entries: Reduced.both")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert checks(target, code=0) == {"Reduced.both, rank 1": (True, "2 graphs here")}
    monkeypatch.setenv("RANK", "0")
    assert checks(target, code=1)["Reduced.both, rank 0"][0] is False
