"""Scenarios on the emulated NPU, cold in this process and again in a fresh one."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.relaunch import Outcome, run_python

COUNTED = ("load", "compile", "cached")


def cold_and_warm(modules: Sequence[str], root: Path) -> Outcome:
    """Run every scenario of some modules here, then in one fresh process."""
    cold = run_all(modules, root, relaunched=False)
    code = "from tests.npu.relaunch import child; child()"
    return Outcome(cold, run_python(code, str(root), *modules, environ={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}))


def run_all(modules: Sequence[str], root: Path, *, relaunched: bool) -> dict[str, Any]:
    """Run scenarios; each report also has what GE did meanwhile, and how many NPU graphs were captured."""
    from tests.npu import graphs, native
    from tests.support.scenarios import run_scenario, scenario_names

    reports = {}
    for module, name in [(each, name) for each in modules for name in scenario_names(each)]:
        native.COUNTS.clear()
        native.COUNTS["initialize"] = 1
        graphs.COUNTS.clear()
        report = run_scenario(module, name, root, relaunched=relaunched, backend="auto", tolerance=2e-6)
        report["ge"] = {kind: native.COUNTS[kind] for kind in COUNTED}
        report["captures"] = graphs.COUNTS["capture"]
        # torchair's own modules import sympy, and the text of an NPU graph Dynamo.
        of_torchair = {"sympy", "torch._dynamo", "torch._inductor"} if report["captures"] else {"sympy"}
        report["imported"] = [name for name in report["imported"] if name not in of_torchair]
        reports[name] = report
    return reports


def child() -> None:
    """The fresh process."""
    from tests.npu.device import install

    install()
    print(json.dumps(run_all(sys.argv[2:], Path(sys.argv[1]), relaunched=True)))
