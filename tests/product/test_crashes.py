"""Processes are killed with `kill -9` wherever that can hurt: no torn entry is served, and the next one continues."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.source_tree import ROOT
from tests.support.store_actors import ACTORS, load

STRACE = shutil.which("strace")

#: What a publish asks of the operating system that leaves a trace on disk, or a lock.
SYSCALLS = "mkdir,openat,write,fsync,rename,unlink,flock,utimensat"


def run(script: str, root: Path, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*prefix, sys.executable, str(ROOT / "tests" / "support" / script), str(root), *arguments]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=500)


def report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    assert "actor:" not in done.stderr, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_processes_killed_at_600_random_moments_leave_whole_entries(tmp_path: Path) -> None:
    found = report(run("store_actors.py", tmp_path / "cache", "random", "600", "1"))
    assert found["kills"] == 600
    assert found["ended by themselves"] == 0
    assert min(found["hits"], found["misses"]) > 100, "the test must meet both"


@pytest.mark.slow
@pytest.mark.parametrize("actor", ACTORS)
def test_a_process_killed_at_any_of_its_calls_leaves_whole_entries(tmp_path: Path, actor: str) -> None:
    found = report(run("store_actors.py", tmp_path / "cache", "boundaries", actor))
    assert found["boundaries"] >= {"publish": 60, "load": 4}.get(actor, 15)


def can_trace() -> bool:
    if STRACE is None:
        return False
    return subprocess.run([STRACE, "-qq", "-e", "trace=none", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not can_trace(), reason="strace is missing or may not trace")
def test_a_process_killed_at_any_system_call_of_a_publish_leaves_a_whole_entry(tmp_path: Path) -> None:
    assert STRACE is not None
    root, log = tmp_path / "cache", tmp_path / "log"
    trace = (STRACE, "-qq", "-f", "-s", "4096", "-e", f"trace={SYSCALLS}", "-e", "signal=none", "-o", str(log))
    report(run("store_actors.py", root, "publish", "0", prefix=trace))
    # strace counts each name from the start of the program, Python's own calls included.
    counts: Counter[str] = Counter()
    calls: list[tuple[str, int]] = []
    for line in log.read_text().splitlines():
        name = line.split()[1].partition("(")[0]
        counts[name] += 1
        # All that begins with a path is told from Python's own by it, all else begins after the first such.
        if str(root) in line or (calls and not line.count('"/')):
            calls.append((name, counts[name]))
    assert len(calls) > 50
    outcomes: Counter[str] = Counter()
    for name, number in calls:
        shutil.rmtree(root, ignore_errors=True)
        kill = (STRACE, "-qq", "-f", "-e", f"trace={name}", "-e", f"inject={name}:signal=KILL:when={number}")
        done = run("store_actors.py", root, "publish", "0", prefix=(*kill, "-o", "/dev/null"))
        there = "entry" if load(root) else "no entry"
        outcomes[f"{'killed' if done.returncode else 'ended'}, {there}"] += 1
    assert outcomes["killed, no entry"] > 40
    assert outcomes["killed, entry"] >= 4
    assert outcomes.total() == outcomes["killed, no entry"] + outcomes["killed, entry"]


@pytest.mark.slow
def test_processes_that_compile_are_killed_at_random_moments(tmp_path: Path) -> None:
    found = report(run("product_actors.py", tmp_path / "cache", "killed", "16"))
    assert found["died"] >= 3
    assert (found["errors"], found["faults"]) == ([], [])
    assert found["last"]["warnings"] == found["after"]["warnings"] == []
    assert (found["after"]["hits"], found["after"]["traces"]) == (1, 0)
