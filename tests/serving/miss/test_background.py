"""`on_miss="background"`: nobody waits for a compile, which goes on in a process of its own."""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import gearcache
from gearcache.cache.admin.tally import misses
from gearcache.cache.layout import Layout
from gearcache.errors import CaptureError, InputError, OptionError
from gearcache.ge_cache.private_torch.threads import compile_lock
from gearcache.ge_cache.workers.process import WorkerProcess
from gearcache.serving.miss import background, forked_build
from tests.support.fork_server import run_code
from tests.support.processes import is_alive, wait_until
from tests.support.scenarios import strict_config
from tests.support.source_tree import ROOT

SECONDS = 150.0
_LOWEST_PRIORITY = forked_build._NICE


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.factor = 1
        self.settings = types.SimpleNamespace(factor=1.0)

    def run(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.factor

    def scaled(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.settings.factor

    def counts(self, x: Tensor) -> Tensor:
        self.factor += 1
        x.add_(1)
        return x * self.factor

    def of_dtype(self, x: Tensor) -> Tensor:
        return x.to(self.linear.weight.dtype) * self.linear.weight

    def writes(self, x: Tensor, y: Tensor) -> Tensor:
        return x.add_(1) * y

    def by_size(self, x: Tensor) -> Tensor:
        if x.size(0) == 3:
            print("no graph")
        return self.linear(x)

    def prints(self, x: Tensor) -> Tensor:
        print("no graph")
        return x + 1


#: Why a build cannot begin where `fork` fails.
NO_PROCESS = "no process can be started: [Errno 11] Resource temporarily unavailable"


def _cached(function: Callable[..., Any], gears: Any = None, **options: Any) -> Any:
    return gearcache.cache_compile(function, gears=gears, config=strict_config(on_miss="background", **options))


@pytest.fixture(autouse=True)
def _prompt_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a test before is over, and other tests that keep the cores busy do not make it wait for minutes."""
    background.wait_for_slot()
    monkeypatch.setattr(forked_build, "_NICE", 0)


def _until(is_so: Callable[[], object], call: Callable[[], object] = lambda: None) -> None:
    assert wait_until(is_so, SECONDS, call)


def test_calls_run_without_a_graph_until_it_is_there(cache_dir: Path) -> None:
    net, events = Net(), []
    cached = _cached(net.run, {"x": {0: [2, 3]}})
    remove = gearcache.add_listener(lambda event: events.append(event.kind))
    x = torch.randn(2, 4)
    begin = time.monotonic()
    assert torch.equal(cached(x), net.run(x))
    assert time.monotonic() - begin < SECONDS
    assert (cached.stats.traces, dict(cached.stats.eager_reasons)) == (0, {"background": 1})
    _until(lambda: cached.stats.loads, lambda: torch.testing.assert_close(cached(x), net.run(x)))
    remove()
    assert (cached.stats.traces, cached.stats.compiles, cached.stats.hits) == (1, 2, 0)
    assert [kind for kind in events if kind != "load"] == ["miss", "trace", "compile", "compile", "publish"]
    eager = cached.stats.eager_calls
    torch.testing.assert_close(cached(torch.ones(3, 4)), net.run(torch.ones(3, 4)))
    assert cached.stats.eager_calls == eager
    outside = torch.randn(5, 4)
    _until(lambda: cached.stats.loads > 2, lambda: torch.testing.assert_close(cached(outside), net.run(outside)))
    assert len(cached.stats.gears) == 3

    found = _cached(Net().run, {"x": {0: [2, 3]}})  # as a relaunch
    found(x)
    assert (found.stats.hits, found.stats.eager_calls, found.stats.traces) == (1, 0, 0)


def test_what_calls_change_meanwhile_is_never_mixed_up(cache_dir: Path) -> None:
    """The eager calls change the module and the argument that the build begins with."""
    net, plain = Net(), Net()
    plain.load_state_dict(net.state_dict())
    cached = _cached(net.counts)
    for _ in range(40):
        x, y = torch.zeros(2), torch.zeros(2)
        assert torch.equal(cached(x), plain.counts(y))
        assert torch.equal(x, y)
        assert net.factor == plain.factor
        time.sleep(0.005)
    assert cached.stats.eager_calls <= 40


def test_a_failed_build_is_told_once_and_not_repeated_in_a_loop(
    cache_dir: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: begun.append(1) or fork())
    cached = _cached(Net().prints)
    x = torch.ones(2)
    _until(lambda: cached.stats.eager_reasons.get("refused"), lambda: cached(x))
    for _ in range(5):
        assert torch.equal(cached(x), x + 1)
        cached(torch.ones(3))
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(begun) == 1
    assert len(told) == 1
    assert "`print`" in told[0]
    assert "Net.prints runs without a graph" in told[0]
    assert "compiling in the background failed: CaptureError" in cached.explain()
    with pytest.raises(CaptureError, match="`print`"):
        cached.warm(x, wait=True)


def test_builds_begin_again_once_the_host_can_start_processes(
    cache_dir: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[int] = []

    def fork() -> int:
        refused.append(1)
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(background, "PATIENCE", 0.01)
    net, x = Net(), torch.ones(2, 4)
    cached = _cached(net.run)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", fork)
        _until(lambda: len(refused) > 4, lambda: cached(x))
    assert torch.equal(cached(x), net.run(x))
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == [f"Net.run runs without a graph: compiling in the background failed: {NO_PROCESS}"]
    _until(lambda: cached.stats.loads, lambda: cached(x))


def test_warm_begins_and_wait_waits(cache_dir: Path) -> None:
    net = Net()
    cached = _cached(net.run, {"x": {0: [2, 3]}})
    cached.warm(torch.ones(2, 4))
    assert cached.stats.loads == 0
    cached.warm(torch.ones(2, 4), wait=True)
    assert (cached.stats.loads, cached.stats.compiles, cached.stats.eager_calls) == (2, 2, 0)
    cached(torch.ones(3, 4))
    assert cached.stats.eager_calls == 0


def test_nobody_waits_for_a_thread_that_prepares_a_call(cache_dir: Path) -> None:
    cached = _cached(Net().run)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with cached.locked():
            held.set()
            done.wait(SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    cached(torch.ones(2, 4))
    done.set()
    thread.join()
    assert dict(cached.stats.eager_reasons) == {"background": 1}


def test_a_graph_serves_as_soon_as_it_is_there_whatever_is_built_then(cache_dir: Path) -> None:
    x = torch.ones(2, 4)
    first, second = _cached(Net().run), _cached(Net().scaled)
    first(x)
    background.wait_for_slot()
    second(x)
    build = background._slot._build
    assert build is not None
    os.kill(build._pid, signal.SIGSTOP)
    try:
        first(x)
        assert (first.stats.loads, first.stats.eager_calls) == (1, 1)
        assert not background._slot.is_free()
    finally:
        os.kill(build._pid, signal.SIGCONT)


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_build_reports_counts_although_the_method_is_refreshed_meanwhile(cache_dir: Path, fails: bool) -> None:
    net, x = Net(), torch.ones(2, 4)
    cached = _cached(net.scaled)
    cached(x)
    cached.refresh()
    build = background._slot._build
    assert build is not None
    if fails:
        os.kill(build._pid, signal.SIGKILL)
    cached(x)
    _until(lambda: cached.stats.loads, lambda: cached(x))
    assert (cached.stats.traces, cached.stats.compiles) == (1, 1)
    assert dict(cached.stats.eager_reasons).keys() == {"background"}, "what failed before it was refreshed is repeated"


def test_a_process_with_cuda_is_not_forked(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(OptionError, match=r"option `on_miss` is 'background' for `Net.run`.*CUDA"):
        _cached(Net().run)(torch.ones(2, 4))


def test_a_child_that_is_killed_is_a_failed_build(cache_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    cached = _cached(Net().run)
    cached.warm(torch.ones(2, 4))
    build = background._slot._build
    assert build is not None
    os.kill(build._pid, signal.SIGKILL)
    _until(lambda: cached.stats.eager_reasons.get("refused"), lambda: cached(torch.ones(2, 4)))
    assert "has ended without a report" in caplog.text
    cached.warm(torch.ones(2, 4), wait=True)  # whoever wants it at any price gets it
    assert cached.stats.loads == 1


@pytest.mark.parametrize(
    ("limit", "still", "told"),
    [
        (0.3, SECONDS, "had not ended after 0.6 s and was stopped"),
        (SECONDS, 0.5, "did nothing for 0.5 s and was stopped"),
    ],
)
def test_a_build_that_hangs_is_stopped(
    cache_dir: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    limit: float,
    still: float,
    told: str,
) -> None:
    monkeypatch.setattr(forked_build, "_SAMPLE_SECONDS", 0.1)
    monkeypatch.setattr(forked_build, "STILL_SECONDS", still)
    cached = _cached(Net().run, compile_timeout=limit)
    with monkeypatch.context() as patch:
        patch.setattr("gearcache.serving.miss.builds.Builds.build", lambda *_, **__: time.sleep(SECONDS))
        cached.warm(torch.ones(2, 4))
    _until(lambda: cached.stats.eager_reasons.get("refused"), lambda: cached(torch.ones(2, 4)))
    assert told in caplog.text


def test_a_build_that_works_or_waits_for_a_child_is_not_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_build, "STILL_SECONDS", 0.6)
    monkeypatch.setattr(forked_build, "_SAMPLE_SECONDS", 0.0)
    programs = {
        "import time\nwhile True: sum(range(300_000)), time.sleep(0.1)": False,
        "import os, time; time.sleep(60 if os.fork() else 61)": False,
        "import time; time.sleep(60)": True,
    }
    running = [subprocess.Popen([sys.executable, "-c", text], start_new_session=True) for text in programs]
    activities = [forked_build.ProcessActivity(run.pid) for run in running]
    found: list[bool] = []

    def look() -> None:
        found[:] = [activity.is_still() for activity in activities]

    _until(lambda: any(found), look)
    for _ in range(5):  # one that is still a little later
        time.sleep(0.1)
        look()
    for run in running:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    assert dict(zip(programs, found, strict=True)) == programs


def test_a_module_that_changes_before_each_graph_is_there_is_not_built_in_a_loop(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[int] = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: begun.append(1) or fork())
    net, x, config = Net(), torch.ones(2, 4), strict_config(on_miss="background")
    cached = gearcache.cache_compile(net.scaled, config=config, constants=["self.settings.factor"])

    def call() -> None:
        net.settings.factor += 0.5
        assert torch.equal(cached(x), net.scaled(x))

    _until(lambda: cached.stats.eager_reasons.get("refused"), call)
    for _ in range(20):
        call()
    assert len(begun) == 2
    assert caplog.text.count("the module changes meanwhile") == 1
    assert len(cached.explain().splitlines()) < 410  # the latest 400, and what stands around them


def test_who_waits_for_the_end_of_a_connection_does_not_wait_for_the_build(cache_dir: Path) -> None:
    cached = _cached(Net().run)
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gearcache.serving.miss.builds.Builds.build", lambda *_, **__: time.sleep(SECONDS))
        cached.warm(torch.ones(2, 4))
    ours.close()
    os.close(write)
    theirs.settimeout(SECONDS / 2)
    assert theirs.recv(1) == b""
    assert os.read(read, 1) == b""
    os.close(read)
    theirs.close()
    assert background._slot._build is not None
    os.kill(background._slot._build._pid, signal.SIGKILL)
    background.wait_for_slot()


def test_no_process_is_forked_while_a_thread_imports_or_holds_dynamos_lock(cache_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "slow_module.py").write_text("import threading\nbegun.set()\ndone.wait()\n")
    begun, done = threading.Event(), threading.Event()

    def slow_import() -> None:
        spec = importlib.util.spec_from_file_location("slow_module", tmp_path / "slow_module.py")
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        module.begun, module.done = begun, done  # type: ignore[attr-defined]
        with importlib._bootstrap._ModuleLockManager("slow_module"):  # type: ignore[attr-defined]
            spec.loader.exec_module(module)  # type: ignore[union-attr]

    def hold() -> None:
        with compile_lock():
            begun.set()
            done.wait()

    for busy in (slow_import, hold):
        begun.clear()
        done.clear()
        thread = threading.Thread(target=busy)
        thread.start()
        try:
            begun.wait()
            assert not forked_build.can_fork()
            cached = _cached(Net().run)
            cached(torch.ones(2, 4))
            assert background._slot._build is None
        finally:
            done.set()
            thread.join()
        assert forked_build.can_fork()
    _until(lambda: cached.stats.loads, lambda: cached(torch.ones(2, 4)))


def test_the_session_of_a_build_and_those_of_its_workers_have_the_lowest_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enabled = Path("/proc/sys/kernel/sched_autogroup_enabled")
    if not enabled.exists() or enabled.read_text().strip() != "1":
        pytest.skip("sessions share the processors as their processes do here")
    monkeypatch.setattr(forked_build, "_NICE", _LOWEST_PRIORITY)

    def work() -> None:
        worker = WorkerProcess("gearcache.ge_cache.inductor.backend:InductorBackend")
        end = time.monotonic() + SECONDS
        found = []
        for pid in (os.getpid(), worker.pid):
            while "nice 19" not in (text := Path(f"/proc/{pid}/autogroup").read_text()) and time.monotonic() < end:
                time.sleep(0.05)
            found.append(text.split(" ", 1)[1])
        (tmp_path / "found").write_text("".join(found))
        worker.end()

    build = forked_build.ForkedBuild(work, SECONDS)
    while (report := build.poll()) is None:
        time.sleep(0.02)
    assert report.error == ""
    assert (tmp_path / "found").read_text() == "nice 19\n" * 2


PROGRAM = """
import os, signal, sys, time, torch, gearcache
from gearcache.serving.miss import background
from gearcache.serving.miss.builds import Builds
build = Builds.build
def slow(*given, **named):
    time.sleep(0.5)
    return build(*given, **named)
Builds.build = slow
config = gearcache.CompilerConfig(backend="eager", on_miss="background")
with torch.no_grad():
    gearcache.cache_compile(torch.nn.Linear(4, 4).forward, config=config)(torch.ones(2, 4))
print(background._slot._build._pid, flush=True)
if sys.argv[1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["end", "kill"])
def test_the_process_can_end_at_any_moment(cache_dir: Path, how: str) -> None:
    done = run_code(PROGRAM, how, environ=os.environ, cwd=ROOT, compiles=True)
    assert done.returncode == (0 if how == "end" else -signal.SIGKILL), done.stderr
    _until(lambda: not is_alive(int(done.stdout)))
    assert not list(cache_dir.rglob("manifest.msgpack"))


def test_a_child_that_hangs_in_the_fork_itself_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_build, "_run", lambda *arguments: time.sleep(600))
    build = forked_build.ForkedBuild(lambda: None, 0.0)
    report = build.poll()
    assert report is not None
    assert report.kind == "TimeoutError"
    with pytest.raises(ChildProcessError):
        os.waitpid(build._pid, os.WNOHANG)


def test_a_build_that_cannot_start_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    pipe = os.pipe

    def one_pipe() -> tuple[int, int]:
        if made:
            raise OSError(24, "Too many open files")
        made.append(pipe())
        return made[0]

    monkeypatch.setattr(os, "pipe", one_pipe)
    with pytest.raises(OSError, match="Too many open files"):
        forked_build.ForkedBuild(lambda: None, 1.0)
    for descriptor in made[0]:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_builds_rest_for_a_bounded_time_however_often_they_fail() -> None:
    assert background._rest(0) < background._rest(2000) == background.PATIENCE


def test_each_miss_is_counted_once(cache_dir: Path) -> None:
    config = strict_config(on_miss="background")
    cached = gearcache.cache_compile(Net().run, dynamic=False, config=config)
    for count in (1, 2):
        _until(lambda: cached.stats.loads >= count, lambda: cached(torch.ones(count + 1, 4)))  # noqa: B023
    assert sum(misses(Layout(cache_dir))["Net.run"].values()) == cached.stats.misses == 1


def _built(call: Callable[[], object]) -> None:
    call()
    background.wait_for_slot()


def test_a_module_that_changes_during_a_build_gets_a_build_of_its_own(
    cache_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net, x = Net(), torch.ones(4)
    config = gearcache.CompilerConfig(backend="eager", on_miss="background")
    cached = gearcache.cache_compile(net.of_dtype, config=config)
    cached(x)
    net.half()
    background.wait_for_slot()
    for _ in range(2):
        _built(lambda: cached(x))
    assert torch.equal(cached(x), net.of_dtype(x))
    assert (cached.stats.traces, cached.stats.loads) == (2, 1)
    assert (cached.stats.faults, caplog.text.count("cannot be used")) == (0, 0)


def test_what_a_build_reports_counts_although_the_module_changes_meanwhile(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, begun, fork = Net(), [], os.fork
    cached = gearcache.cache_compile(net.by_size, config=strict_config(on_miss="background"), dynamic=False)
    cached.warm(torch.ones(2, 4), wait=True)
    monkeypatch.setattr(os, "fork", lambda: begun.append(1) or fork())
    for _ in range(3):
        _built(lambda: cached(torch.ones(3, 4)))
        net.linear.weight = torch.nn.Parameter(torch.ones(4, 4))
    assert (cached.stats.traces, len(begun)) == (2, 1)
    assert cached.stats.eager_reasons["refused"] == 2


@pytest.mark.parametrize("is_first", [False, True])
def test_wrong_arguments_raise_and_end_no_builds(cache_dir: Path, is_first: bool) -> None:
    config = gearcache.CompilerConfig(backend="eager", on_miss="background")
    cached = gearcache.cache_compile(Net().writes, config=config, dynamic=False)
    both = torch.ones(3)
    right, wrong = (torch.ones(2), torch.ones(2)), (both[:2], both[1:])
    _built(lambda: cached(*(wrong if is_first else right)))  # nothing is known of the method at its first call
    written = both.clone()
    for _ in range(2):
        with pytest.raises(InputError, match="shares memory with `y`"):
            _built(lambda: cached(*wrong))
    assert torch.equal(both, written)
    for _ in range(2):
        _built(lambda: cached(torch.ones(3), torch.ones(3)))
    assert (cached.stats.traces, cached.stats.loads, cached.stats.faults) == (2, 2, 0)


def test_a_fault_of_the_cache_begins_no_build(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = gearcache.cache_compile(Net().run, config=gearcache.CompilerConfig(backend="eager", on_miss="background"))

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("gearcache.serving.find.known.KnownVariants.take_fresh", fails)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fork", lambda: pytest.fail("a build has begun"))
        for _ in range(2):
            cached(torch.ones(2, 4))
    assert dict(cached.stats.eager_reasons) == {"fault": 2}
