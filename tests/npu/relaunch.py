"""Scenarios on the emulated NPU, cold in this process and again in a fresh one that may neither trace nor convert."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.support.relaunch import Outcome, run_python

COUNTED = ("load", "compile", "cached")


def cold_and_warm(module: str, root: Path) -> Outcome:
    """Run every scenario of a module here, then in one fresh process."""
    from tests.support.scenarios import scenario_names

    names = scenario_names(module)
    cold = run_all(module, names, root, relaunched=False)
    order = json.dumps({"module": module, "names": names, "root": str(root)})
    code = "from tests.npu.relaunch import child; child()"
    return Outcome(cold, run_python(code, order, environ={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}))


def run_all(module: str, names: list[str], root: Path, *, relaunched: bool) -> dict[str, Any]:
    """Run scenarios; each report also has what GE did meanwhile, and how many NPU graphs were captured."""
    from tests.npu import graphs, native
    from tests.support.scenarios import run_scenario

    reports = {}
    for name in names:
        native.COUNTS.clear()
        native.COUNTS["initialize"] = 1
        graphs.COUNTS.clear()
        report = run_scenario(module, name, root, relaunched=relaunched, backend="auto", tolerance=2e-6)
        report["ge"] = {kind: native.COUNTS[kind] for kind in COUNTED}
        report["captures"] = graphs.COUNTS["capture"]
        reports[name] = report
    return reports


def forbid_tracing() -> None:
    """Make Dynamo's capture and both FX converters an error."""
    import npugraph_ex.npu_fx_compiler
    import torch._dynamo.convert_frame
    import torchair.npu_fx_compiler

    def refuse(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("a relaunched process traced or converted a graph")

    torch._dynamo.convert_frame.compile_frame = refuse
    torchair.npu_fx_compiler._NpuFxCompiler._gen_compiled_gm = refuse
    npugraph_ex.npu_fx_compiler._NpuFxCompiler._gen_compiled_gm = refuse


def child() -> None:
    """The fresh process."""
    from tests.npu.device import install

    install()
    forbid_tracing()
    order = json.loads(sys.argv[1])
    print(json.dumps(run_all(order["module"], order["names"], Path(order["root"]), relaunched=True)))
