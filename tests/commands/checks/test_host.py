"""`doctor`, `prewarm`, `explain MODULE:FUNCTION` and the cron script, as processes."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gearcache.cache.layout import Layout
from gearcache.commands.checks.host_checks import check_host, check_settings
from gearcache.ge_cache.inductor import targets
from gearcache.torch_release import TESTED_TEXT
from gearcache.variables import VARIABLES
from tests.support.commands import DECODE, PREFILL, listed, run, run_json, run_process, store
from tests.support.deploys import DEPLOY
from tests.support.relaunch import run_python
from tests.support.source_tree import ROOT

OTHERS = """
def declare():
    with torch.device("meta"):
        batch = gearcache.Symbol("batch", gears=[1, 2])
        net = Net()
    config = gearcache.CompilerConfig(backend="eager")
    cached = gearcache.cache_compile(net.decode, config=config)
    cached.set_inputs(gearcache.TensorSpec((batch, 4), torch.float32))

def serve():
    net = Net()
    net.cached = gearcache.cache_compile(net.decode, config=gearcache.CompilerConfig(backend="eager"))
    net.cached.set_inputs(gearcache.TensorSpec((gearcache.Symbol(gears=[1, 2]), 4), torch.float32))
    with torch.inference_mode():
        return net.cached(torch.ones(2, 4)).shape, net.cached.stats.traces

def broken():
    build()
    raise RuntimeError("wrong script")

def ends():
    build()
    raise SystemExit(0)

def slow():
    import time
    from gearcache.ge_cache.eager import EagerBackend
    compile = EagerBackend.compile
    def slowly(self, job, stage):
        if job.gear == "x.size(0)=1":
            print("compiling", flush=True)
            time.sleep(60)
        return compile(self, job, stage)
    EagerBackend.compile = slowly
    build()
"""


@pytest.fixture
def deploy(tmp_path: Path, cache_dir: Path) -> Path:
    (tmp_path / "deploy.py").write_text(DEPLOY + OTHERS)
    return tmp_path


# -- doctor -------------------------------------------------------------------------------------------------


def test_doctor_finds_this_host_sound(cache_dir: Path) -> None:
    found = {check["name"]: check for check in run_json("doctor")["checks"]}
    assert found["torch"]["ok"]
    assert found["compiler"]["ok"]
    assert found["locks"]["ok"]
    assert not cache_dir.exists()
    assert "ok    torch" in run("doctor").stdout


def test_doctor_lists_the_targets_of_this_host(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    for name, words in (
        ("x86-64-v3", "under a target (x86-64-v2, x86-64-v3) the threads alone"),
        ("armv8-a", "entries"),
    ):
        monkeypatch.setattr(targets, "cpu_flags", lambda name=name: targets.TARGETS[name].flags)
        (check,) = [check for check in run_json("doctor")["checks"] if check["name"] == "cpu"]
        assert check["detail"].endswith(words)


def test_fewer_threads_than_the_variable_says_are_told_before_anything_is_compiled(
    deploy: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"OMP_NUM_THREADS": "512,1"}
    if run_python("import torch; print(torch.get_num_threads())", environ=environ) == 512:
        pytest.skip("this torch takes as many threads as it is told")
    words = r"OMP_NUM_THREADS is 512, and torch uses \d+ of them, as this host has no more cores"
    for threads, is_told in ((), True), (("--threads", "512"), False):
        done = run_process("prewarm", "--dry-run", "deploy:build", *threads, cwd=deploy, environ=environ)
        assert bool(re.search(words, done.stderr)) == is_told
    monkeypatch.setenv("OMP_NUM_THREADS", "512")
    assert re.search(words, run("doctor").stdout)


def test_doctor_says_what_to_do_without_a_compiler(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/no/such/compiler")
    (check,) = [check for check in run_json("doctor", code=1)["checks"] if check["name"] == "compiler"]
    assert check["ok"] is False
    assert "/no/such/compiler" in check["detail"]
    assert "install g++ with OpenMP or set CXX" in check["remedy"]


def test_a_compiler_that_cannot_compile_is_told(tmp_path: Path) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\necho 'cannot find omp.h' >&2\nexit 1\n")
    compiler.chmod(0o700)
    (check,) = [check for check in check_host({"CXX": str(compiler)}) if check.name == "compiler"]
    assert check.ok is False
    assert "cannot compile with OpenMP: cannot find omp.h" in check.detail


def test_another_release_of_torch_is_told(
    release_of_torch: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    release_of_torch("2.99.0+cu132")
    (check,) = [check for check in check_host({}) if check.name == "torch"]
    found = "2.99.0+cu132, which gearcache is not tested with"
    assert (check.ok, check.detail) == (True, f"{found}, and which has the names that it uses and calls its hooks")
    monkeypatch.setattr("gearcache.torch_names.missing_names", lambda: ("torch._C._gone",))
    (check,) = [check for check in check_host({}) if check.name == "torch"]
    assert check.ok is False
    assert check.detail.startswith(f"{found}: torch 2.99.0+cu132 lacks `torch._C._gone`")
    assert check.remedy.startswith("install torch==2.")
    release_of_torch("2.12.1")
    (check,) = [check for check in check_host({}) if check.name == "torch"]
    assert (check.ok, "or newer, this is 2.12.1" in check.detail) == (False, True)


def test_a_wrong_setting_is_told() -> None:
    checks, _ = check_settings({"GEARCACHE_JOBS": "many"})
    assert checks[0].ok is False
    assert "GEARCACHE_JOBS" in checks[0].detail
    checks, key_file = check_settings({"GEARCACHE_JOBS": "2", "GEARCACHE_HMAC_KEY_FILE": "/key"})
    assert (checks[0].ok, key_file) == (True, Path("/key"))


def test_a_misspelt_variable_is_not_listed_as_a_setting_that_is_ok() -> None:
    checks, _ = check_settings({"GEARCACHE_MAX_SIZ": "1GB", "GEARCACHE_JOBS": "2"})
    assert [(check.ok, check.detail) for check in checks] == [
        (True, "GEARCACHE_JOBS=2"),
        (False, "nothing reads `GEARCACHE_MAX_SIZ`; `GEARCACHE_MAX_SIZE` is meant?"),
    ]


def test_doctor_writes_sizes_as_the_other_commands_do(cache_dir: Path) -> None:
    store(cache_dir, DECODE, b"d" * 2_200_000)
    found = {check["name"]: check["detail"] for check in run_json("doctor")["checks"]}
    assert found["entries"] == "1 entry, 2.2 MB"
    assert found["space"].split()[1] in ("MB", "GB", "TB")


def test_doctor_tells_a_folder_that_others_can_write(cache_dir: Path) -> None:
    store(cache_dir, DECODE, b"d")
    Layout(cache_dir).bucket.chmod(0o777)
    (check,) = [check for check in run_json("doctor", code=1)["checks"] if check["name"] == "permissions"]
    assert stat.S_IMODE(Layout(cache_dir).bucket.stat().st_mode) == 0o777, "doctor only tells"
    assert "chmod" in check["remedy"]


def test_a_command_that_needs_torch_says_which(
    deploy: Path, monkeypatch: pytest.MonkeyPatch, release_of_torch: Callable[[str], None]
) -> None:
    monkeypatch.chdir(deploy)
    release_of_torch("2.12.1")
    done = run("prewarm", "deploy:build", code=1)
    assert done.stderr.startswith(f"error: gearcache works with torch {TESTED_TEXT} or newer, this is 2.12.1: install")


# -- prewarm ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_prewarm_compiles_once_and_then_says_all_present(deploy: Path, cache_dir: Path) -> None:
    missing = run_process("prewarm", "deploy:build", "--dry-run", cwd=deploy)
    assert missing.returncode == 1
    assert "2 of 2 gears missing" in missing.stdout
    assert "note: Net.decode: absent" in missing.stderr
    first = run_process("prewarm", "deploy:build", cwd=deploy)
    assert (first.returncode, "compiled 2 gears in" in first.stdout) == (0, True), first.stderr
    assert "noise of the deployment" in first.stderr
    assert "Net.decode: gear x.size(0)=2 done" in first.stderr
    second = run_process("prewarm", "deploy.py:build", "--json", cwd=deploy)
    report = json.loads(second.stdout)
    assert (second.returncode, report["complete"], report["compiled"], report["present"]) == (0, True, 0, 2)
    third = run_process("prewarm", "deploy:build", cwd=deploy)
    assert "all present: 2 gears" in third.stdout


@pytest.mark.slow
def test_prewarm_needs_no_call_where_the_arguments_are_declared(deploy: Path, cache_dir: Path) -> None:
    done = run_process("prewarm", "deploy:declare", "--json", cwd=deploy)
    report = json.loads(done.stdout)
    assert (done.returncode, report["complete"], report["compiled"]) == (0, True, 2), done.stderr
    again = run_process("prewarm", "deploy:declare", cwd=deploy)
    assert "all present: 2 gears" in again.stdout
    serve = "import json; from deploy import serve; print(json.dumps(serve()))"
    assert run_python(serve, cwd=deploy, environ={"TORCHAIR_CACHE_HOME": str(cache_dir)}) == [[2, 4], 0]


@pytest.mark.slow
def test_ctrl_c_during_a_prewarm_leaves_a_cache_that_goes_on(deploy: Path, cache_dir: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gearcache", "prewarm", "deploy:slow"],
        cwd=deploy,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts background jobs, a whole run of the tests maybe, with the signal ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("compiling"):
                break
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted; what was finished is stored" in err
    assert run_json("verify")["sound"]
    again = json.loads(run_process("prewarm", "deploy:build", "--json", cwd=deploy).stdout)
    assert (list(again["entries"][0]["compiled"]), again["entries"][0]["present"]) == (["x.size(0)=1"], ["x.size(0)=2"])


def test_an_error_of_the_function_is_a_traceback_and_exit_code_1(deploy: Path, cache_dir: Path) -> None:
    done = run_process("prewarm", "deploy:broken", "--json", cwd=deploy)
    assert done.returncode == 1
    assert "RuntimeError: wrong script" in done.stderr
    assert json.loads(done.stdout)["error"] == "RuntimeError: wrong script"
    assert json.loads(done.stdout)["compiled"] == 2


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("nowhere:build",), "there is no module `nowhere`"),
        (
            ("deploy:nothing",),
            "`deploy` has no function `nothing`; it has Net, broken, build, declare, ends, serve",
        ),
        (("deploy",), "`deploy` names no function"),
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
    run_process("prewarm", "deploy:build", cwd=deploy)
    (deploy / "deploy.py").write_text(DEPLOY.replace("[1, 2]", "[1, 2, 4]"))
    done = run_process("explain", "deploy:build", cwd=deploy)
    assert done.returncode == 1
    assert "missing: x.size(0)=1; x.size(0)=2; x.size(0)=4" in done.stdout
    assert "`gears.axes.0.2.2` is `4`, stored is missing in the nearest entry" in done.stdout


# -- the cron script ----------------------------------------------------------------------------------------


def clear_cache(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "TORCHAIR_CACHE_HOME"}
    return subprocess.run(
        [str(ROOT / "scripts" / "clear_cache.sh"), *arguments],
        env={**inherited, "GEARCACHE": f"{sys.executable} -m gearcache", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_cron_script_prunes_to_a_size(cache_dir: Path) -> None:
    store(cache_dir, DECODE, os.urandom(5000))
    time.sleep(0.01)
    store(cache_dir, PREFILL, os.urandom(5000))
    assert "would remove 1 entry" in clear_cache("--dry-run", str(cache_dir), MAX_SIZE="8kB").stdout
    assert len(listed()) == 2
    assert clear_cache(str(cache_dir), MAX_SIZE="8kB").returncode == 0
    assert [entry["method"] for entry in listed()] == ["Model.prefill"]


def test_the_cron_script_takes_no_guess(cache_dir: Path) -> None:
    assert clear_cache().returncode == 2
    assert clear_cache("--wrong").returncode == 2
    assert clear_cache(str(cache_dir)).returncode == 0, "there is no cache yet"
    assert clear_cache(str(cache_dir.parent), MAX_SIZE="huge").returncode == 2


def test_config_shows_where_each_setting_is_from(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEARCACHE_JOBS", "3")
    settings = {row["name"]: row for row in run_json("doctor", "--settings")["settings"]}
    assert (settings["GEARCACHE_JOBS"]["value"], settings["GEARCACHE_JOBS"]["origin"]) == ("3", "environment")
    assert (settings["GEARCACHE_STRICT"]["value"], settings["GEARCACHE_STRICT"]["origin"]) == ("0", "default")
    assert settings["TORCHAIR_CACHE_HOME"]["value"] == str(cache_dir)
    assert not cache_dir.exists()


def test_a_misspelt_variable_is_told(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEARCACHE_MAX_SIZ", "1GB")
    words = "nothing reads `GEARCACHE_MAX_SIZ`; `GEARCACHE_MAX_SIZE` is meant?"
    assert words in run("doctor", "--settings", code=1).stderr
    assert words in run("doctor", code=1).stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("GEARCACHE_MAX_SIZE", "5"),
        ("GEARCACHE_JOBS", "x"),
        ("GEARCACHE_REMOTES", "ftp://a"),
        ("GEARCACHE_STRICT", "no"),
    ],
)
def test_a_command_ends_with_2_and_names_a_wrong_variable(
    name: str, text: str, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, text)
    for command in (["list"], ["stats"], ["verify"], ["prune", "--max-size", "1GB"]):
        assert f"`{name}`" in run(*command, code=2).stderr
    run("list", "--help")
    assert f"`{name}`" in run("doctor", "--settings", code=1).stderr
    assert f"`{name}`" in run("doctor", code=1).stdout


def test_every_variable_that_the_code_reads_is_a_setting() -> None:
    files = [path for folder in ("src", "cache", "guards", "ge_cache") for path in (ROOT / folder).rglob("*.py")]
    read = {name for path in files for name in re.findall(r"\bGEARCACHE_[A-Z_]+", path.read_text())}
    assert read - {variable.name for variable in VARIABLES} == {"GEARCACHE_COMPLETE"}


@pytest.mark.parametrize(
    "command",
    [("prewarm",), ("prewarm", "--dry-run"), ("prewarm", "--shard", "1/1"), ("doctor", "--ready"), ("explain",)],
)
def test_a_function_that_ends_the_process_is_no_success(deploy: Path, command: tuple[str, ...]) -> None:
    done = run_process(*command, "deploy:ends", cwd=deploy)
    assert done.returncode == 1
    assert "SystemExit" in done.stdout + done.stderr


def test_a_script_that_ends_the_process_is_no_success(deploy: Path) -> None:
    (deploy / "main.py").write_text("import sys\nsys.exit(0)\n")
    done = run_process("doctor", "--ready", "main:build", cwd=deploy)
    assert done.returncode == 1
    assert "`main` cannot be imported" in done.stderr
