"""Compile workers and the compilers that they start: none outlives its parent, a hung one is ended in time."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import gearcache
from gearcache.cache.layout import Layout
from gearcache.cache.store import DiskStore
from gearcache.child_process import receive, send
from gearcache.errors import CompileError
from gearcache.ge_cache.backend import Artifact, Stage
from gearcache.ge_cache.compile_job import CompileJob, plain_job
from gearcache.ge_cache.eager import EagerBackend
from gearcache.ge_cache.inductor.backend import InductorBackend
from gearcache.ge_cache.workers import program
from gearcache.ge_cache.workers.kept import KEPT
from gearcache.ge_cache.workers.pool import CompilePool
from gearcache.ge_cache.workers.process import WorkerProcess
from gearcache.ge_cache.workers.scratch import PREFIX
from tests.support.no_threads import NoThreads
from tests.support.processes import is_alive, wait_until

#: A compiler that never ends, also when it is asked to, and that has started something.
HUNG = "#!/bin/sh\ntrap '' TERM\necho $$ >> {log}\nsleep 1000 &\necho $! >> {log}\nwait\nwait\nwait\n"
PARENT = """
import os, sys
from tests.ge_cache.workers.test_compile_workers import Compiling
from gearcache.ge_cache.workers.pool import CompilePool
pool = CompilePool(Compiling(), 1, 1, 1000.0)
if os.fork() == 0:
    os.close(1)
    sys.stdin.read()  # holds what its parent holds, until the test ends
    os._exit(0)
print(pool._slots[0].worker().pid, flush=True)
sys.stdin.read()
"""


class Parallel(EagerBackend):
    """Real worker processes."""

    worker = InductorBackend.worker


class Quick(EagerBackend):
    """Worker processes that import no compiler, and let no job be made: for tests of how long they live."""

    worker = f"{__name__}:Quick"

    def compile(self, job: CompileJob, stage: Stage) -> Artifact:
        raise TypeError("it has no graph")


class Compiling(Quick):
    """Worker processes that start the compiler without Inductor, which takes seconds to import."""

    worker = f"{__name__}:Compiling"

    def warm_up(self, threads: int, target: str, stage: Stage) -> None:
        subprocess.check_output([os.environ["CXX"]])


@pytest.fixture
def hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make the compiler one that hangs; gives the file in which it writes the processes that hang."""
    log = tmp_path / "hung.log"
    script = tmp_path / "c++"
    script.write_text(HUNG.format(log=log))
    script.chmod(0o755)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("TMPDIR", str(temporary))
    # No headers are there yet: the first thing that a worker does is to build them.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(temporary / "inductor"))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    yield log
    for pid in processes(log):  # only where a test has failed
        os.kill(pid, signal.SIGKILL)


def processes(log: Path) -> list[int]:
    """Return those of the processes in a log that are alive."""
    pids = [int(line) for line in log.read_text().split()] if log.exists() else []
    return [pid for pid in pids if is_alive(pid)]


def job(size: int) -> CompileJob:
    return CompileJob("M.f", f"x.size(0)={size}", None, [], {}, {}, 1)


@pytest.mark.slow
def test_no_worker_and_no_compiler_outlives_its_parent_though_a_fork_of_it_lives_on(hung: Path) -> None:
    command = [sys.executable, "-c", PARENT]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    try:
        worker = int(parent.stdout.readline())
        assert wait_until(lambda: len(processes(hung)) == 2), "the compiler was not started"
        parent.kill()
        started = time.monotonic()
        alive = [worker, *processes(hung)]
        assert wait_until(lambda: not any(map(is_alive, alive)), 20.0), [pid for pid in alive if is_alive(pid)]
        assert time.monotonic() - started < 10.0
    finally:
        parent.kill()
        parent.communicate()


def test_a_hung_compiler_is_ended_after_the_time_limit_and_what_is_left_is_not_begun(hung: Path) -> None:
    with CompilePool(Compiling(), 1, 1, 0.5) as pool:
        assert wait_until(lambda: len(processes(hung)) == 2), "the compiler was not started"
        late, given_up = pool.compile(iter([job(2), job(3)]), lambda gear, stage: None)
        assert "gear x.size(0)=2: the backend failed: it had not ended after 0.5 s" in str(late.error)
        assert "GEARCACHE_COMPILE_TIMEOUT" in str(late.error)
        assert "gear x.size(0)=3: the backend failed: it was not begun" in str(given_up.error)
        assert processes(hung) == []
    assert list((hung.parent / "temporary").glob(f"{PREFIX}*")) == []


def test_the_call_is_told_and_the_key_is_free_for_others(hung: Path, cache_dir: Path) -> None:
    module = torch.nn.Linear(4, 4)
    config = gearcache.CompilerConfig(backend="inductor", compile_timeout=1.5, jobs=1)
    cached = gearcache.cache_compile(module.forward, config=config, cache_dir=cache_dir)
    with torch.no_grad(), pytest.raises(CompileError, match=r"had not ended after 1\.5 s.*`compile_timeout`"):
        cached(torch.randn(2, 4))
    (binding,) = cached._bindings
    with DiskStore(Layout(cache_dir), lock_timeout=0).exclusive(binding.entry.key):
        pass


def worker_of_a_build() -> WorkerProcess:
    """The first worker of a build that has ended; its only gear has no graph."""
    with CompilePool(Quick(), 1, 1, 1000.0) as pool:
        worker = pool._slots[0].worker()
        assert worker is not None
        (outcome,) = pool.compile(iter([job(2)]), lambda gear, stage: None)
        assert "TypeError" in str(outcome.error)
    return worker


def worker_of_a_pool() -> WorkerProcess | None:
    """The worker that a build would have; a new one ends before it has imported anything."""
    with CompilePool(Quick(), 1, 1, 1000.0) as pool:
        return pool._slots[0].worker()


@pytest.fixture
def none_kept() -> Iterator[None]:
    """No worker is kept before the test and after it."""
    KEPT.end()
    yield
    KEPT.end()


@pytest.mark.usefixtures("none_kept")
def test_a_worker_is_kept_for_a_while_and_then_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearcache.ge_cache.workers.kept.KEPT_SECONDS", 0.2)
    worker = WorkerProcess(Quick.worker)
    KEPT.keep(worker)
    assert is_alive(worker.pid)
    assert wait_until(lambda: worker._process.returncode is not None)
    assert not is_alive(worker.pid)
    with pytest.raises(ChildProcessError):
        os.waitpid(worker.pid, os.WNOHANG)


@pytest.mark.usefixtures("none_kept")
def test_the_next_build_of_a_process_takes_the_worker_of_the_last_one_if_it_would_start_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = worker_of_a_build()
    assert worker_of_a_pool() is first
    with monkeypatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")  # read by Inductor at its import
        assert worker_of_a_pool() is not first
    os.kill(first.pid, signal.SIGKILL)  # as a host without memory does
    assert wait_until(first.has_exited)
    assert worker_of_a_pool() is not first


@pytest.mark.usefixtures("none_kept")
def test_a_worker_ends_itself_though_a_fork_of_its_parent_holds_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = WorkerProcess(Quick.worker)
    held_by_a_fork = os.dup(worker._life_line)
    signals: list[bool] = []
    monkeypatch.setattr(worker, "_signal", lambda number: signals.append(worker.has_exited()))
    monkeypatch.setattr("gearcache.ge_cache.workers.process._END_SECONDS", 60.0)
    try:
        worker.end()
    finally:
        os.close(held_by_a_fork)
    assert signals == [True]


@pytest.mark.usefixtures("none_kept")
def test_where_no_thread_can_be_started_every_job_has_an_outcome(no_threads: NoThreads) -> None:
    empty: dict[str, Any] = {"nodes": [], "constants": {}}
    jobs = [CompileJob("M.f", f"x.size(0)={size}", empty, [], {}, {}, 1) for size in (2, 3)]
    with CompilePool(Parallel(), 2, 1, 1000.0) as pool:
        no_threads.after = 1  # one worker is served; its first job gets no time limit
        outcomes = list(pool.compile(iter(jobs), lambda gear, stage: None))
        assert sorted(outcome.index for outcome in outcomes) == [0, 1]
        assert all("no thread can be started" in str(outcome.error) for outcome in outcomes)
        no_threads.after = 0  # the process itself compiles
        outcomes = list(pool.compile(iter(jobs), lambda gear, stage: None))
        assert [(outcome.index, outcome.error) for outcome in outcomes] == [(0, None), (1, None)]
    worker = WorkerProcess(Quick.worker)
    KEPT.keep(worker)
    assert worker.is_ended


def test_a_fault_of_the_compiler_is_not_an_operator_that_the_worker_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Faulty(EagerBackend):
        def compile(self, job: CompileJob, stage: Stage) -> Artifact:
            raise KeyError("buf0")

    requests, answers = io.BytesIO(), io.BytesIO()
    send(requests, {"kind": "compile", "job": plain_job(job(2))})
    requests.seek(0)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=requests))
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)  # this process keeps its own
    program._serve(Faulty(), answers)
    answers.seek(0)
    assert receive(answers)["kind"] == "failed"


def test_where_no_worker_can_be_started_the_process_itself_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with CompilePool(Parallel(), 2, 1, 1000.0) as pool:
        empty: dict[str, Any] = {"nodes": [], "constants": {}}
        outcomes = list(pool.compile(iter([CompileJob("M.f", "x", empty, [], {}, {}, 1)]), lambda gear, stage: None))
    assert [outcome.error for outcome in outcomes] == [None]
    assert outcomes[0].artifact is not None
