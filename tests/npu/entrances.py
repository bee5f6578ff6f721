"""Programs that meet torchair, or npugraph_ex, only after `install()`; they say what they found as JSON.

The one that meets torchair has torch_npu's own lazy modules in place, as on a host with CANN.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gearcache.compat import torchair as compat
from tests.npu.device import install, wheel_folder
from tests.support.forks import run_in_fork

NAMES = ("cache_compile", "readable_cache", "set_dim_gears", "dynamo_export", "_cache_compile")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def doubled(self, x: Tensor) -> Tensor:
        return self.linear(x) * 2


def _loaded() -> list[str]:
    """Which of both packages has been imported, in whole or in part."""
    return [name for name in ("torchair", "npugraph_ex") if f"{name}.inference" in sys.modules]


def _owners(*modules: str) -> dict[str, str]:
    """The module of the function that stands at each name of some modules."""
    found = {}
    for module in modules:
        present = importlib.import_module(module)
        found |= {f"{module}.{name}": getattr(present, name).__module__ for name in NAMES if name in vars(present)}
    return found


def _lazy_modules() -> None:
    """Put torch_npu's lazy stand-ins for torchair and npugraph_ex in place of the emulated host's plain packages."""
    sys.path.remove(str(wheel_folder() / "dynamo"))
    del sys.modules["torch_npu.dynamo"]
    guard = sys.modules.pop("torch_npu.dynamo._deterministic_guard")
    dynamo: Any = importlib.import_module("torch_npu.dynamo")
    sys.modules["torch_npu.dynamo._deterministic_guard"] = guard
    dynamo._install_lazy_torchair()
    dynamo._get_npugraph_ex_backend()


def torchair(folder: Path) -> dict[str, Any]:
    """Every entrance to torchair: installed, uninstalled, installed again."""
    _lazy_modules()
    compat.install()
    found: dict[str, Any] = {"lazy": type(sys.modules["torchair"]).__name__, "imported by install": _loaded()}
    for module, name in (
        ("torch_npu.dynamo.torchair.inference", "cache_compile"),
        ("torchair.inference", "set_dim_gears"),
    ):
        globals()[name] = getattr(importlib.import_module(module), name)  # as `from module import name` at the top does
    modules = [
        f"{package}{module}"
        for package in ("torchair", "torch_npu.dynamo.torchair")
        for module in (".inference", ".inference._cache_compiler", ".npu_export")
    ]
    modules += ["torch_npu.dynamo.torchair", __name__]
    found["installed"] = _owners(*modules)
    found["watched"] = hasattr(sys.modules["torchair.core._backend"]._get_global_op_compile_config, "__wrapped__")
    compat.uninstall()
    found["uninstalled"] = _owners(*modules)
    compat.install()
    found["again"] = _owners(*modules)
    return found


def npugraph_ex(folder: Path) -> dict[str, Any]:
    """Every entrance to npugraph_ex, and cached methods through both signatures."""
    import torch_npu

    compat.install()
    torch_npu.npu.__path__ = [str(wheel_folder() / "npu")]
    public: Any = importlib.import_module("torch_npu.npu.npugraph_ex.inference")
    found: dict[str, Any] = {"imported before": _loaded()}
    model, x = Model().to("npu").eval(), torch.randn(2, 4).to("npu")
    by_options = public.cache_compile(
        model.doubled, cache_dir=folder / "a", dynamic=False, options={"frozen_parameter": True}
    )
    package: Any = importlib.import_module("npugraph_ex")
    config = package.CompilerConfig()
    config.frozen_parameter = True
    by_config = package.inference.cache_compile(model.doubled, config=config, cache_dir=folder / "a", dynamic=False)
    with torch.no_grad():
        expected = model.doubled(x).cpu()
        found["equal"] = [torch.equal(cached(x).cpu(), expected) for cached in (by_options, by_config)]
    found["one entry"] = by_options.entry_path == by_config.entry_path
    found["key"] = public.readable_cache(by_options.entry_path, print_output=False)
    found["imported"] = _loaded()
    modules = (public.__name__, "npugraph_ex.inference", "npugraph_ex.inference._cache_compiler")
    found["installed"] = _owners(*modules)
    compat.uninstall()
    found["uninstalled"] = _owners(*modules)
    return found


def main(folder: Path) -> None:
    """Run each program in a fork; both import Dynamo, which takes longest."""

    install()
    found = {}
    for program in (torchair, npugraph_ex):
        file = folder / program.__name__
        if run_in_fork(lambda: file.write_text(json.dumps(program(folder)))) == 0:  # noqa: B023
            found[program.__name__] = json.loads(file.read_text())
    print(json.dumps(found))
