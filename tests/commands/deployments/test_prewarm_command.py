"""`gearcache prewarm` on a deployment script."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.product.test_disk import needs_mount
from tests.support.commands import run, run_json, run_process
from tests.support.deploys import DEPLOY
from tests.support.fork_server import run_code
from tests.support.source_tree import ROOT

OTHERS = """
def broken():
    build()
    raise RuntimeError("wrong script")

def build_two():
    build()
    with torch.device("meta"):
        Net().cached(torch.zeros(2, 4, dtype=torch.float64))

def ends():
    build()
    raise SystemExit(0)

def stopped():
    import os, signal, threading, time
    from gearcache.ge_cache.eager import EagerBackend
    compile = EagerBackend.compile
    def slowly(self, job, stage):
        if job.gear == "x.size(0)=1":
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            time.sleep(60)
        return compile(self, job, stage)
    EagerBackend.compile = slowly
    build()
"""


#: A prewarm into a disk that has room for the folders of a cache, and for no entry.
ON_FULL_DISK = """
import sys
from pathlib import Path
from tests.support.mounted import mount_here
disk = Path(sys.argv[1])
mount_here(disk, "size=64k")
(disk / "filling").write_bytes(bytes(48 << 10))
from gearcache.cli import main
main(["prewarm", "deploy:build_two", "--cache-dir", str(disk / "cache"), "--json"])
"""


@pytest.fixture
def deploy(tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The script `deploy.py` in the working folder; other tests have modules of this name."""
    (tmp_path / "deploy.py").write_text(DEPLOY + OTHERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "deploy", raising=False)
    yield tmp_path / "deploy.py"
    sys.modules.pop("deploy", None)


def test_prewarm_compiles_once_and_then_says_all_present(deploy: Path) -> None:
    missing = run("prewarm", "deploy:build", "--dry-run", code=1)
    assert "2 of 2 graphs missing" in missing.stdout
    assert "note: Net.decode: missing x.size(0)=1; x.size(0)=2, because: absent" in missing.stderr
    first = run("prewarm", "deploy:build")
    assert "compiled 2 graphs in" in first.stdout
    assert "noise of the deployment" in first.stderr
    report = run_json("prewarm", "deploy.py:build")
    assert (report["complete"], report["compiled"], report["present"]) == (True, 0, 2)
    assert "all present: 2 graphs" in run("prewarm", "deploy:build").stdout


def test_ctrl_c_during_a_prewarm_leaves_a_cache_that_goes_on(deploy: Path) -> None:
    begun = time.monotonic()
    done = run_process("prewarm", "deploy:stopped", cwd=deploy.parent, compiles=True)
    assert time.monotonic() - begun < 55, "the compile was waited for"
    assert done.returncode == 130, done.stderr
    assert "interrupted; what was finished is stored" in done.stderr
    assert run_json("verify")["sound"]
    (again,) = run_json("prewarm", "deploy:build")["entries"]
    assert (list(again["compiled"]), again["present"]) == (["x.size(0)=1"], ["x.size(0)=2"])


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("nowhere:build",), "there is no module `nowhere`"),
        (
            ("deploy:nothing",),
            "`deploy` has no function `nothing`; it has Net, broken, build, build_two, ends, stopped",
        ),
        (("none.py:build",), "there is no file `none.py`"),
        (("deploy:build", "--rank", "1"), "--rank needs --world-size"),
        (("deploy:build", "--rank", "2", "--world-size", "2"), "--rank is at most 1"),
        (("deploy:build", "--device", "abacus"), "--device: "),
    ],
)
def test_wrong_usage_is_told(arguments: tuple[str, ...], message: str, deploy: Path) -> None:
    done = run("prewarm", *arguments, code=2)
    assert done.stdout == ""
    assert message in done.stderr


def test_a_dry_run_says_what_the_calls_of_a_function_miss(deploy: Path) -> None:
    run("prewarm", "deploy:build")
    sys.modules.pop("deploy")
    deploy.write_text(DEPLOY.replace("[1, 2]", "[1, 2, 4]"))
    told = run("prewarm", "--dry-run", "deploy:build", code=1).stderr
    assert "missing x.size(0)=1; x.size(0)=2; x.size(0)=4, because: " in told
    assert "`gears.axes.0.2.2` is `4`, stored is missing in the nearest entry" in told


@pytest.mark.parametrize("command", [("prewarm",), ("doctor", "--ready")])
def test_a_function_that_ends_the_process_is_no_success(deploy: Path, command: tuple[str, ...]) -> None:
    assert "SystemExit" in run(*command, "deploy:ends", code=1).output


def test_a_cache_that_cannot_be_written_ends_a_prewarm_at_once(deploy: Path) -> None:
    done = run("prewarm", "deploy:build_two", "--cache-dir", "/proc/nowhere", code=3)
    assert "error: could not write `/proc/nowhere" in done.stderr
    assert done.stderr.count("could not write") == 1, done.stderr
    assert "Traceback" not in done.stderr
    report = run_json("prewarm", "deploy:build_two", "--cache-dir", "/proc/nowhere", code=3)
    assert (report["compiled"], report["failed"], report["complete"]) == (0, 1, False), "the second call was not tried"


@needs_mount
def test_a_graph_that_a_full_disk_does_not_take_is_not_compiled(deploy: Path) -> None:
    (deploy.parent / "disk").mkdir()
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    done = run_code(ON_FULL_DISK, str(deploy.parent / "disk"), environ=environ, cwd=deploy.parent, compiles=True)
    assert done.returncode == 3, done.stderr
    assert "No space left on device; nothing more is compiled" in done.stderr
    report = json.loads(done.stdout)
    assert (report["compiled"], report["failed"], report["complete"]) == (0, 1, False)


def test_an_error_of_the_function_has_the_frames_of_the_user_alone(deploy: Path) -> None:
    short = run("prewarm", "deploy:broken", code=1).stderr
    assert "RuntimeError: wrong script" in short
    assert f'File "{deploy}", line' in short
    assert "prewarming" not in short
    assert "prewarming" in run("prewarm", "-v", "deploy:broken", code=1).stderr
