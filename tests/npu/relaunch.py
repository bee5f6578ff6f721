"""Scenarios on the emulated NPU, cold in this process and again in a fresh one that may neither trace nor convert."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
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


def forbid_tracing() -> None:
    """Make Dynamo's capture and both FX converters an error, in whatever of them is imported now or later."""

    def refuse(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("a relaunched process traced or converted a graph")

    def no_capture(module: Any) -> None:
        module.compile_frame = refuse

    def no_conversion(module: Any) -> None:
        module._NpuFxCompiler._gen_compiled_gm = refuse

    sys.meta_path.insert(
        0,
        AfterImport(
            {
                "torch._dynamo.convert_frame": no_capture,
                "torchair.npu_fx_compiler": no_conversion,
                "npugraph_ex.npu_fx_compiler": no_conversion,
            }
        ),
    )


class AfterImport(MetaPathFinder):
    """Calls a function with a module right after its import."""

    def __init__(self, functions: dict[str, Callable[[Any], None]]) -> None:
        assert not [name for name in functions if name in sys.modules]
        self._functions = functions

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Return what the other finders find, with the call behind the import."""
        function = self._functions.pop(fullname, None)
        spec = None if function is None else importlib.util.find_spec(fullname)
        if function is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            function(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def child() -> None:
    """The fresh process."""
    from tests.npu.device import install

    install()
    forbid_tracing()
    print(json.dumps(run_all(sys.argv[2:], Path(sys.argv[1]), relaunched=True)))
