"""The modules in which programs find torchair's cache functions, and what `install()` puts there.

One function has several entrances: torch_npu contains torchair and npugraph_ex under their own names and below
`torch_npu.dynamo`, where an import by name makes a second module of the same file.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

_TORCHAIR = ("torchair", "torch_npu.dynamo.torchair")
_NPUGRAPH_EX = ("npugraph_ex", "torch_npu.dynamo.npugraph_ex")
#: torch_npu makes `torch.npu` the same module as `torch_npu.npu`.
_OF_TORCH_NPU = ("torch_npu.npu.npugraph_ex", "torch.npu.npugraph_ex")

#: Packages that belong to torchair: names that they have bound for themselves are not changed.
OWNERS = ("torchair", "npugraph_ex", "torch_npu", "torch.npu")


def entrances(
    torchair: Mapping[str, Any], npugraph_ex: Mapping[str, Any], of_torch_npu: Mapping[str, Any]
) -> dict[str, dict[str, types.FunctionType]]:
    """Return module -> name -> our function, from the replacements for each package.

    `dynamo_export` of `torchair` is a name of the package itself; all others are names of its `inference`. Every
    entrance gets its own function object, so that `uninstall` can find what was there before.
    """
    table: dict[str, dict[str, types.FunctionType]] = {}
    inference = {name: function for name, function in torchair.items() if name != "dynamo_export"}
    inner = {name: function for name, function in inference.items() if name != "set_dim_gears"}
    export = {"dynamo_export": torchair["dynamo_export"]}
    for package in _TORCHAIR:
        # torchair's `_gear_utils.set_dim_gears` is not replaced: its own compiler uses it to mark dims.
        table |= {package: export, f"{package}.npu_export": export}
        table |= {f"{package}.inference": inference, f"{package}.inference._cache_compiler": inner}
    for package in _NPUGRAPH_EX:
        table |= {f"{package}.inference": dict(npugraph_ex), f"{package}.inference._cache_compiler": dict(npugraph_ex)}
    for package in _OF_TORCH_NPU:
        table[f"{package}.inference"] = dict(of_torch_npu)
    return {module: {name: _copy(function) for name, function in names.items()} for module, names in table.items()}


def is_being_reexported(module: str, executed: types.ModuleType | None) -> bool:
    """Whether a package that re-exports the names of this module is being imported: it must get torchair's own.

    `executed` is a module whose code has just run to its end.
    """
    if not module.endswith(("._cache_compiler", ".npu_export")):
        return False
    spec = getattr(sys.modules.get(module.rpartition(".")[0]), "__spec__", None)
    return bool(getattr(spec, "_initializing", False)) and spec is not getattr(executed, "__spec__", None)


def is_owned(module: str) -> bool:
    """Whether a module belongs to torchair, npugraph_ex or torch_npu."""
    return any(module == owner or module.startswith(f"{owner}.") for owner in OWNERS)


def _copy(function: Callable[..., Any]) -> types.FunctionType:
    assert isinstance(function, types.FunctionType)
    clone = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    clone.__kwdefaults__ = function.__kwdefaults__
    clone.__annotations__ = function.__annotations__
    clone.__doc__, clone.__qualname__, clone.__module__ = function.__doc__, function.__qualname__, function.__module__
    return clone
