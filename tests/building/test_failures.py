"""Compiles that fail: the gear is named, the others are kept, and a host without a compiler says so."""

from __future__ import annotations

import os
import signal
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.errors import CompileError, UncacheableGuard
from gearcache.ge_cache.backend import Artifact
from gearcache.ge_cache.compile_job import CompileJob
from gearcache.ge_cache.eager import EagerBackend
from gearcache.ge_cache.workers.pool import CompilePool
from tests.support.scenarios import strict_config

GEARS = {"input": {0: [2, 3, 4]}}


class KilledWorkers(EagerBackend):
    """Real worker processes, which are told to compile something that ends them."""

    worker = "gearcache.ge_cache.eager:EagerBackend"


@pytest.fixture
def compile_fails_at_three(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_gear = EagerBackend.compile

    def fail(self: EagerBackend, job: CompileJob, *arguments: Any) -> Artifact:
        if job.gear == "input.size(0)=3":
            raise RuntimeError("the disk of the compiler is on fire")
        return compile_gear(self, job, *arguments)

    monkeypatch.setattr(EagerBackend, "compile", fail)


@pytest.mark.usefixtures("compile_fails_at_three")
def test_a_failing_gear_is_named_and_the_others_are_kept(
    cache_dir: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = torch.nn.Linear(4, 4)
    cached = gearcache.cache_compile(module.forward, config=strict_config(), cache_dir=cache_dir, gears=GEARS)
    with torch.no_grad():
        for size in (2, 4):
            x = torch.randn(size, 4)
            assert torch.equal(cached(x), module(x))
        assert "gear input.size(0)=3: the backend failed" in caplog.text
        with pytest.raises(CompileError, match=r"input.size\(0\)=3.*on fire"):
            cached(torch.randn(3, 4))
        monkeypatch.undo()
        x = torch.randn(3, 4)
        assert torch.equal(cached(x), module(x))
    assert cached.stats.gears == {"input.size(0)=2": 1, "input.size(0)=4": 1, "input.size(0)=3": 1}


def test_a_host_without_a_compiler_runs_the_method_and_says_first_why_nothing_stored_serves(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    module, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    config = gearcache.CompilerConfig(backend="inductor")
    cached = gearcache.cache_compile(module.forward, config=config, cache_dir=cache_dir)
    with torch.no_grad():
        cached.warm(x)
        for _ in range(3):
            assert torch.equal(cached(x), module(x))
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(
        "Linear.forward: the cache cannot be used: absent: no entry for `Linear.forward`; "
        "then backend `inductor` cannot run here: no C++ compiler was found (/nowhere/g++)"
    )
    assert cached.stats.eager_reasons == {"fault": 4}  # `warm` as well
    report = gearcache.prewarm(lambda: cached.warm(x), cache_dir=cache_dir)
    assert "no C++ compiler" in next(iter(report.entries[0].failed.values()))


def test_a_worker_that_dies_is_an_error_of_its_gear_and_the_next_gear_gets_another() -> None:
    jobs = [CompileJob("M.f", f"x.size(0)={size}", None, [], {}, {}, 1) for size in (2, 3)]
    with CompilePool(KilledWorkers(), 1, 1, 300.0) as pool:
        worker = pool._slots[0].worker()
        assert worker is not None
        os.kill(worker.pid, signal.SIGKILL)
        dead, failed = pool.compile(iter(jobs), lambda gear, stage: None)
    assert dead.artifact is None
    assert "x.size(0)=2: the backend failed: the worker process broke" in str(dead.error)
    assert "x.size(0)=3: the backend failed: AttributeError" in str(failed.error)


class Replaced(torch.nn.Module):
    def run(self, x: torch.Tensor) -> torch.Tensor:
        return x * zlib.adler32(b"seven")


def test_a_graph_whose_own_evidence_does_not_hold_says_what_it_is(cache_dir: Path) -> None:
    names: dict[str, Any] = {}
    # As if this file was edited since its import.
    exec(compile("def adler(*_): return 7", __file__, "exec"), names)  # noqa: S102
    torch.compiler.substitute_in_graph(zlib.adler32, skip_signature_check=True)(names["adler"])
    cached = gearcache.cache_compile(Replaced().run, config=strict_config(), cache_dir=cache_dir)
    with pytest.raises(UncacheableGuard, match=r"`adler` from .*no file holds it"):
        cached(torch.ones(2))


def test_compiled_code_is_not_given_memory_that_holds_other_values(cache_dir: Path) -> None:
    class Negated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("shift", torch.randn(8, dtype=torch.cfloat).conj().imag)

        def run(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.shift

    module, x = Negated(), torch.randn(8)
    cached = gearcache.cache_compile(module.run, config=gearcache.CompilerConfig(backend="inductor"))
    with torch.no_grad(), pytest.raises(gearcache.CaptureError, match="negated lazily"):
        cached(x)
    module.shift = module.shift.resolve_neg()
    eager = gearcache.cache_compile(module.run, config=gearcache.CompilerConfig(backend="eager"))
    assert torch.equal(eager(x), module.run(x))


@pytest.mark.usefixtures("compile_fails_at_three")
def test_a_compile_that_keeps_failing_is_not_repeated_at_every_call(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(torch.nn.Linear(4, 4).forward, config=strict_config(), gears=GEARS)
    with torch.no_grad():
        traces = []
        for _ in range(4):
            with pytest.raises(CompileError, match="on fire"):
                cached(torch.randn(3, 4))
            traces.append(cached.stats.traces)
    assert traces[0] < traces[1] == traces[2] == traces[3], "once more, in case it was for once"
