"""`doctor` and the cron script, as processes."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gearcache.ge_cache.inductor import targets
from gearcache.variables import VARIABLES
from tests.support.commands import DECODE, PREFILL, listed, run, run_json, store
from tests.support.source_tree import ROOT

#: Spares a compile where another check is looked at.
NO_COMPILER = {"CXX": "/no/such/compiler"}
#: Variables, each with a value that is not allowed.
WRONG = {"GEARCACHE_MAX_SIZE": "5", "GEARCACHE_JOBS": "x", "GEARCACHE_REMOTES": "ftp://a", "GEARCACHE_STRICT": "no"}


def test_doctor_finds_this_host_sound(cache_dir: Path) -> None:
    told = run("doctor").stdout
    for name in ("torch", "compiler", "locks"):
        assert f"ok    {name}" in told
    assert not cache_dir.exists()


def test_doctor_lists_the_targets_of_this_host_and_what_to_do_without_a_compiler(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setenv("CXX", "/no/such/compiler")
    for name, words in (
        ("x86-64-v3", "under a target (x86-64-v2, x86-64-v3) the threads alone"),
        ("armv8-a", "entries"),
    ):
        monkeypatch.setattr(targets, "cpu_flags", lambda name=name: targets.TARGETS[name].flags)
        checks = {check["name"]: check for check in run_json("doctor", code=1)["checks"]}
        assert checks["cpu"]["detail"].endswith(words)
        assert checks["compiler"]["ok"] is False
        assert "/no/such/compiler" in checks["compiler"]["detail"]
        assert "install g++ with OpenMP or set CXX" in checks["compiler"]["remedy"]


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


def test_a_misspelt_variable_and_a_wrong_value_are_told(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEARCACHE_MAX_SIZ", "1GB")
    for name, text in WRONG.items():
        monkeypatch.setenv(name, text)
    for told in (run("doctor", "--settings", code=1).stderr, run("doctor", code=1).stdout):
        assert "nothing reads `GEARCACHE_MAX_SIZ`; `GEARCACHE_MAX_SIZE` is meant?" in told
        for name in WRONG:
            assert f"`{name}`" in told


@pytest.mark.parametrize("name", WRONG)
def test_a_command_ends_with_2_and_names_a_wrong_variable(
    name: str, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, WRONG[name])
    assert f"`{name}`" in run("list", code=2).stderr
    run("list", "--help")


def test_every_variable_that_the_code_reads_is_a_setting() -> None:
    files = [path for folder in ("src", "cache", "guards", "ge_cache") for path in (ROOT / folder).rglob("*.py")]
    read = {name for path in files for name in re.findall(r"\bGEARCACHE_[A-Z_]+", path.read_text())}
    assert read - {variable.name for variable in VARIABLES} == {"GEARCACHE_COMPLETE"}
