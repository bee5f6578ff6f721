"""Runs scenarios in a fresh process, and asserts that it neither traced nor imported a compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Container
from pathlib import Path
from typing import Any

import pytest

from tests.support.fork_server import run_code
from tests.support.sampled import chosen
from tests.support.source_tree import ROOT

#: Code after which a process has most of what torch registers when it is imported.
IMPORT_MUCH_OF_TORCH = (
    "import json, torch, torch._inductor.compile_fx, torch.ao.quantization, torch.distributed.tensor, gearcache"
)


class Outcome:
    """Reports of all scenarios of a module, cold and relaunched."""

    def __init__(self, cold: dict[str, Any], warm: dict[str, Any]) -> None:
        self.cold = cold
        self.warm = warm

    def assert_right(self, name: str, *, traces: int | None = None) -> None:
        """Fail unless a scenario gave what eager gives in both processes, and the relaunched one only loaded."""
        self.assert_cold(name, traces=traces)
        self.assert_warm(name)

    def assert_cold(self, name: str, *, traces: int | None = None) -> None:
        """Fail unless the compiling process gave what eager gives."""
        report = self.cold[name]
        _assert_equal(report, "cold")
        if traces is not None:
            assert sum(stats["traces"] for stats in report["stats"]) == traces

    def assert_warm(self, name: str) -> None:
        """Fail unless the relaunched process gave what eager gives, without a trace or a compiler."""
        report = self.warm[name]
        _assert_equal(report, "relaunched")
        assert report["imported"] == [], f"imported on a hit: {report['imported']}; {report['stats']}"
        for stats in report["stats"]:
            assert (stats["traces"], stats["compiles"]) == (0, 0), stats
            assert stats["misses"] == 0, stats["miss_reasons"]
            assert stats["hits"] >= 1


def _assert_equal(report: dict[str, Any], process: str) -> None:
    assert report["error"] is None, f"{process}:\n{report['error']}"
    assert report["checks"], "the scenario checked nothing"
    for label, check in report["checks"].items():
        assert check["equal"], f"{process}, {label}: found {check['found']}, expected {check['expected']}"


def cold_and_warm(
    module: str, root: Path, *, backend: str = "eager", tolerance: float = 0.0, kept: Container[str] | None = None
) -> Outcome:
    """Run every scenario of a module here, then in one fresh process; only those of `kept` unless all are tried."""
    return each_cold_and_warm([order(module, root, backend=backend, tolerance=tolerance, kept=kept)])[0]


def order(
    module: str,
    root: Path,
    *,
    backend: str = "eager",
    tolerance: float = 0.0,
    kept: Container[str] | None = None,
) -> dict[str, Any]:
    """What `each_cold_and_warm` takes for a module: which scenarios are run, and how."""
    from tests.support.scenarios import scenario_names

    names = scenario_names(module)
    if kept is not None:
        names = chosen(names, kept)
    return {"module": module, "names": names, "root": str(root), "backend": backend, "tolerance": tolerance}


def each_cold_and_warm(orders: list[dict[str, Any]]) -> list[Outcome]:
    """Run the scenarios of several modules here, then all in one fresh process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHAIR_CACHE_HOME", orders[0]["root"])
        cold = [_run(each, relaunched=False) for each in orders]
    return [Outcome(*reports) for reports in zip(cold, relaunch(orders), strict=True)]


def relaunch(orders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run scenarios in one fresh process that finds the entries of an earlier one."""
    reports: list[dict[str, Any]] = run_python(
        "from tests.support.relaunch import child; child()", json.dumps(orders), ends=True
    )
    return reports


def _run(ordered: dict[str, Any], *, relaunched: bool) -> dict[str, Any]:
    from tests.support.scenarios import run_scenario

    how = {"backend": ordered["backend"], "tolerance": ordered["tolerance"], "relaunched": relaunched}
    return {name: run_scenario(ordered["module"], name, Path(ordered["root"]), **how) for name in ordered["names"]}


def run_python(
    code: str,
    *arguments: str,
    cwd: Path = ROOT,
    environ: dict[str, str] | None = None,
    has_torch: bool = True,
    compiles: bool = False,
    ends: bool = False,
) -> Any:
    """Run code in a fresh interpreter; return what its last line of output holds as JSON.

    `has_torch`: torch may be imported before. `compiles`: so may its compilers, for the code traces something anyhow.
    `ends`: it takes down all that it has loaded, as interpreters do.
    """
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # The thread count is in every key, so both processes have the same.
    kept = ("PATH", "OMP_NUM_THREADS", "THOROUGH")
    inherited = {name: os.environ[name] for name in kept if name in os.environ}
    inherited |= {"HOME": os.environ.get("HOME", "/"), "PYTHONPATH": paths}
    own = inherited | (environ or {})
    if has_torch:
        done = run_code(code, *arguments, environ=own, cwd=cwd, compiles=compiles, ends=ends, timeout=500)
    else:
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, f"{done.stderr[:1000]}\n...\n{done.stderr[-4000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def child() -> None:
    """The fresh process: run what the first argument orders, print the reports."""
    print(json.dumps([_run(each, relaunched=True) for each in json.loads(sys.argv[1])]))
