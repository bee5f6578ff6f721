"""Processes are killed with `kill -9` wherever that can hurt: no torn entry is served, and the next one continues."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fork_server import run_code
from tests.support.sampled import sampled
from tests.support.source_tree import ROOT
from tests.support.store_actors import ACTORS, load

STRACE = shutil.which("strace")

#: What a publish asks of the operating system that leaves a trace on disk, or a lock; how often at least before there
#: is an entry, and after.
SYSCALLS = {
    "mkdir": (40, 1),
    "openat": (45, 2),
    "write": (5, 0),
    "fsync": (25, 1),
    "rename": (5, 0),
    "unlink": (0, 0),
    "flock": (8, 3),
    "utimensat": (0, 1),
}
#: More calls of one name than a publish makes, and than Python makes before it forks.
LAST = 100
LAST_OPENED = 500
MEMORY = Path("/dev/shm")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: a kill loses nothing that was written, and no disk is waited for."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else tmp_path) as name:
        yield Path(name)


def run(
    script: str, root: Path, *arguments: str, prefix: tuple[str, ...] = (), before: str = "pass"
) -> subprocess.CompletedProcess[str]:
    """Run actors; those of the product, which begin with an import of Dynamo, as a fork where that is as good.

    `before`: code that such a fork runs before it imports anything.
    """
    if script == "product_actors.py" and not prefix:
        code = f"{before}\nfrom tests.support.product_actors import main; main()"
        environ = {name: value for name, value in environment().items() if name != "PYTHONHASHSEED"}
        return run_code(code, str(root), *arguments, environ=environ, cwd=ROOT, compiles=True, timeout=500)
    return subprocess.run(
        command(script, root, *arguments, prefix=prefix),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


def command(script: str, root: Path, *arguments: str, prefix: tuple[str, ...] = ()) -> list[str]:
    return [*prefix, sys.executable, str(ROOT / "tests" / "support" / script), str(root), *arguments]


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    assert "actor:" not in done.stderr, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("actor", sampled(ACTORS, ("publish", "import", "clear")))  # others remove as `clear` does
def test_a_process_killed_at_any_of_its_calls_leaves_whole_entries(folder: Path, actor: str) -> None:
    step = 1 if os.environ.get("THOROUGH") else {"import": 9}.get(actor, 4)
    found = report(run("store_actors.py", folder / "cache", "boundaries", actor, str(step)))
    assert found["boundaries"] >= {"publish": 30, "load": 4}.get(actor, 15)


def can_trace() -> bool:
    if STRACE is None:
        return False
    return subprocess.run([STRACE, "-qq", "-e", "trace=none", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not can_trace(), reason="strace is missing or may not trace")
@pytest.mark.parametrize("name", sampled(SYSCALLS, ("fsync", "rename", "write")))
def test_a_process_killed_at_any_system_call_of_a_publish_leaves_a_whole_entry(folder: Path, name: str) -> None:
    """strace counts the calls of each process from its fork on."""
    assert STRACE is not None
    root = folder / "cache"
    last = LAST_OPENED if name == "openat" else LAST
    kill = (
        STRACE,
        "-qq",
        "-f",
        "-e",
        f"trace={name}",
        "-e",
        f"inject={name}:signal=KILL:when={last}",
        "-o",
        "/dev/null",
    )
    outcomes: Counter[str] = Counter()
    with subprocess.Popen(
        command("store_actors.py", root, "calls", name, str(last), prefix=kill),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        while not outcomes["ended 0"] + outcomes["ended 0, entry"]:
            shutil.rmtree(root, ignore_errors=True)
            server.stdin.write("\n")
            server.stdin.flush()
            ended = server.stdout.readline().strip()
            assert ended in ("killed", "ended 0")
            outcomes[f"{ended}, entry" if load(root) else ended] += 1
        server.stdin.close()
    assert outcomes["ended 0, entry"] == 1, "who is not killed leaves an entry"
    assert outcomes["killed"] >= SYSCALLS[name][0]
    assert outcomes["killed, entry"] >= SYSCALLS[name][1]


@pytest.mark.thorough
@pytest.mark.slow
def test_processes_that_compile_are_killed_at_random_moments(tmp_path: Path) -> None:
    found = report(run("product_actors.py", tmp_path / "cache", "killed", "16"))
    assert found["died"] >= 3
    assert (found["errors"], found["faults"]) == ([], [])
    assert found["last"]["warnings"] == found["after"]["warnings"] == []
    assert (found["after"]["hits"], found["after"]["traces"]) == (1, 0)
