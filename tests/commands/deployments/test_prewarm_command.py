"""`gearcache prewarm` and `explain MODULE:FUNCTION`, as processes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.support.commands import run_json, run_process
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
def deploy(tmp_path: Path, cache_dir: Path) -> Path:
    (tmp_path / "deploy.py").write_text(DEPLOY + OTHERS)
    return tmp_path


@pytest.mark.slow
def test_prewarm_compiles_once_and_then_says_all_present(deploy: Path, cache_dir: Path) -> None:
    missing = run_process("prewarm", "deploy:build", "--dry-run", cwd=deploy)
    assert missing.returncode == 1
    assert "2 of 2 gears missing" in missing.stdout
    assert "note: Net.decode: absent" in missing.stderr
    first = run_process("prewarm", "deploy:build", cwd=deploy, compiles=True)
    assert (first.returncode, "compiled 2 gears in" in first.stdout) == (0, True), first.stderr
    assert "noise of the deployment" in first.stderr
    assert "Net.decode: gear x.size(0)=2 done" in first.stderr
    second = run_process("prewarm", "deploy.py:build", "--json", cwd=deploy)
    report = json.loads(second.stdout)
    assert (second.returncode, report["complete"], report["compiled"], report["present"]) == (0, True, 0, 2)
    third = run_process("prewarm", "deploy:build", cwd=deploy)
    assert "all present: 2 gears" in third.stdout


def test_ctrl_c_during_a_prewarm_leaves_a_cache_that_goes_on(deploy: Path, cache_dir: Path) -> None:
    begun = time.monotonic()
    done = run_process("prewarm", "deploy:stopped", cwd=deploy, compiles=True)
    assert time.monotonic() - begun < 55, "the compile was waited for"
    assert done.returncode == 130, done.stderr
    assert "interrupted; what was finished is stored" in done.stderr
    assert run_json("verify")["sound"]
    again = json.loads(run_process("prewarm", "deploy:build", "--json", cwd=deploy, compiles=True).stdout)
    assert (list(again["entries"][0]["compiled"]), again["entries"][0]["present"]) == (["x.size(0)=1"], ["x.size(0)=2"])


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
    done = run_process("prewarm", *arguments, cwd=deploy)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.slow
def test_explain_says_what_the_calls_of_a_function_miss(deploy: Path, cache_dir: Path) -> None:
    run_process("prewarm", "deploy:build", cwd=deploy, compiles=True)
    (deploy / "deploy.py").write_text(DEPLOY.replace("[1, 2]", "[1, 2, 4]"))
    done = run_process("explain", "deploy:build", cwd=deploy)
    assert done.returncode == 1
    assert "missing: x.size(0)=1; x.size(0)=2; x.size(0)=4" in done.stdout
    assert "`gears.axes.0.2.2` is `4`, stored is missing in the nearest entry" in done.stdout


@pytest.mark.parametrize(
    "command",
    [("prewarm",), ("doctor", "--ready")],
)
def test_a_function_that_ends_the_process_is_no_success(deploy: Path, command: tuple[str, ...]) -> None:
    done = run_process(*command, "deploy:ends", cwd=deploy, compiles=command[0] == "prewarm")
    assert done.returncode == 1
    assert "SystemExit" in done.stdout + done.stderr
