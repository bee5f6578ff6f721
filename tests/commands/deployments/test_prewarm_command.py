"""`gearcache prewarm` on a deployment script."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import run, run_json, run_process
from tests.support.deploys import DEPLOY

OTHERS = """
def broken():
    build()
    raise RuntimeError("wrong script")

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
    assert "2 of 2 gears missing" in missing.stdout
    assert "note: Net.decode: missing x.size(0)=1; x.size(0)=2, because: absent" in missing.stderr
    first = run("prewarm", "deploy:build")
    assert "compiled 2 gears in" in first.stdout
    assert "noise of the deployment" in first.stderr
    report = run_json("prewarm", "deploy.py:build")
    assert (report["complete"], report["compiled"], report["present"]) == (True, 0, 2)
    assert "all present: 2 gears" in run("prewarm", "deploy:build").stdout


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
            "`deploy` has no function `nothing`; it has Net, broken, build, ends, stopped",
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
