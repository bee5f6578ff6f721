"""A torchair config as a component of the key: every option, whatever it does, but for a short list.

torchair's own cache key is the text of `as_dict()`, which leaves out what changes the graph (`enable_view_optimize`,
the merge policy, custom passes, the contents of option files). Here everything is in, so a new option of a later
torchair is in as well, until someone proves that it may be left out.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gearcache.errors import OptionError, UnkeyableValue
from gearcache.guards.evidence.code import code_digest
from gearcache.guards.evidence.names import name_of

#: Options that cannot change what a cached method computes, each with its reason.
NOT_IN_KEY: dict[str, str] = {
    "debug.graph_dump.type": "writes a description of the graph while it is compiled",
    "debug.graph_dump.path": "where that description goes",
    "debug.data_dump.path": "only read when data_dump.type is set, which is refused",
    "debug.data_dump.filter": "only read when data_dump.type is set, which is refused",
    "debug.fx_summary.path": "only read when fx_summary.type is set, which is refused",
    "debug.fx_summary.skip_compile": "only read when fx_summary.type is set, which is refused",
    "aoe_config.work_path": "only read when aoe_mode is set, which is refused",
    "aoe_config.aoe_config_file": "only read when aoe_mode is set, which is refused",
    "export.export_path_dir": "read by dynamo_export only, which never goes through the cache",
    "export.export_name": "read by dynamo_export only",
    "export.weight_name": "read by dynamo_export only",
    "export.inputs_name": "read by dynamo_export only",
    "export.experimental.enable_record_nn_module_stack": "adds names for dynamo_export, read by no GE compile",
    "export.experimental.auto_atc_config_generated": "read by dynamo_export only",
}

#: Options under which torchair generates no code, so that nothing could be stored: value that is allowed, remedy.
REFUSED: dict[str, tuple[Any, str]] = {
    "experimental_config.enable_ref_data": (False, "torchair generates no code for RefData"),
    "export.export_mode": (False, "use gearcache.compat.torchair.dynamo_export to export"),
    "aoe_config.aoe_mode": (None, "tune with torch.compile first, then cache"),
    "debug.run_eagerly": (False, "use backend='eager' to run without a compiler"),
    "debug.data_dump.type": (None, "torchair runs eagerly while it dumps data"),
    "debug.fx_summary.type": (None, "torchair runs eagerly while it summarises"),
}

#: Packages whose version is in the key: their functions are known by name.
_VERSIONED = ("torch", "torch_npu", "torchair", "npugraph_ex")
_FILES = ("fusion_config.fusion_switch_file", "dump_config.dump_config_path")


def config_leaves(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return dotted name -> value of every option of a config of torchair or npugraph_ex."""
    found: dict[str, Any] = {}
    for name, value in vars(config).items():
        if name == "_fixed_attrs":
            continue
        path = f"{prefix}{'path' if name == '_path' else name}"
        if "_value" in getattr(value, "__dict__", {}):  # an OptionValue
            found[path] = vars(value)["_value"]
        elif hasattr(value, "_fixed_attrs") or type(value).__module__.startswith(("torchair", "npugraph_ex")):
            found.update(config_leaves(value, f"{path}."))
        else:
            found[path] = value
    return found


def config_component(config: Any) -> dict[str, Any]:
    """Return the part of a config that goes into the key; `ValueError` for an option that cannot be cached.

    `UnkeyableValue` for a value that has no stable form.
    """
    leaves = config_leaves(config)
    check_refused(leaves)
    return {name: _plain(name, value) for name, value in sorted(leaves.items()) if name not in NOT_IN_KEY}


def check_refused(leaves: dict[str, Any]) -> None:
    """Raise `ValueError` for options under which nothing can be stored."""
    for name, (allowed, remedy) in REFUSED.items():
        if name in leaves and leaves[name] != allowed and bool(leaves[name]):
            raise OptionError(f"config.{name} is {leaves[name]!r}, which a cached method cannot have: {remedy}")


def _plain(name: str, value: Any) -> Any:
    if name in _FILES and value is not None:
        # The contents matter, not the place.
        return hashlib.sha256(Path(value).read_bytes()).hexdigest()
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(name, item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(name, item) for key, item in sorted(value.items())}
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return callable_component(name, value, set())
    raise UnkeyableValue(f"options.{name}", type(value).__qualname__)


def callable_component(option: str, function: Any, seen: set[int]) -> Any:
    """Return name and code of a custom pass, and of the functions that it reaches through globals and its closure."""
    inner = getattr(function, "__func__", function)
    if not isinstance(inner, types.FunctionType):
        raise UnkeyableValue(f"options.{option}", type(function).__qualname__, "a pass must be a plain function")
    if id(inner) in seen:
        return name_of(inner)
    seen.add(id(inner))
    reached: list[Any] = []
    for name in sorted(_names(inner.__code__)):
        value = inner.__globals__.get(name)
        if isinstance(value, types.FunctionType) and value.__module__.partition(".")[0] in _VERSIONED:
            reached.append([name, name_of(value)])
        elif isinstance(value, types.FunctionType):
            reached.append([name, callable_component(option, value, seen)])
        elif isinstance(value, (bool, int, float, str)):
            reached.append([name, value])
    for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True):
        value = cell.cell_contents
        if isinstance(value, types.FunctionType):
            reached.append([name, callable_component(option, value, seen)])
        elif value is None or isinstance(value, (bool, int, float, str)):
            reached.append([name, value])
        else:
            raise UnkeyableValue(f"options.{option}", type(value).__qualname__, f"`{name}` in the closure of the pass")
    defaults = [_plain(option, item) for item in inner.__defaults__ or ()]
    return [name_of(inner), code_digest(inner.__code__), defaults, reached]


def _names(code: types.CodeType) -> set[str]:
    nested = [_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*nested)
