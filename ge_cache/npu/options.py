"""A torchair config as a component of the key: every option, except a short list.

torchair's own cache key is the text of `as_dict()`, which omits options that change the graph (`enable_view_optimize`,
the merge policy, custom passes, the contents of option files). Here every option counts, so a new option of a later
torchair counts as well, until it is proved irrelevant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gearcache.errors import OptionError, UnkeyableValue
from gearcache.guards.evidence.identity import described

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

#: Options under which torchair generates no code to store: allowed value, remedy.
REFUSED: dict[str, tuple[Any, str]] = {
    "experimental_config.enable_ref_data": (False, "torchair generates no code for RefData"),
    "export.export_mode": (False, "use gearcache.compat.torchair.dynamo_export to export"),
    "aoe_config.aoe_mode": (None, "tune with torch.compile first, then cache"),
    "debug.run_eagerly": (False, "use backend='eager' to run without a compiler"),
    "debug.data_dump.type": (None, "torchair runs eagerly while it dumps data"),
    "debug.fx_summary.type": (None, "torchair runs eagerly while it summarises"),
}

#: Packages whose version is in the key: their functions are identified by name.
_VERSIONED = ("torch", "torch_npu", "torchair", "npugraph_ex")
_FILES = ("fusion_config.fusion_switch_file", "dump_config.dump_config_path")


def config_leaves(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return dotted name -> value of every option of a config of torchair or npugraph_ex."""
    leaves: dict[str, Any] = {}
    for name, value in vars(config).items():
        if name == "_fixed_attrs":
            continue
        path = f"{prefix}{'path' if name == '_path' else name}"
        if "_value" in getattr(value, "__dict__", {}):  # an OptionValue
            leaves[path] = vars(value)["_value"]
        elif hasattr(value, "_fixed_attrs") or type(value).__module__.startswith(("torchair", "npugraph_ex")):
            leaves.update(config_leaves(value, f"{path}."))
        else:
            leaves[path] = value
    return leaves


def config_component(config: Any) -> dict[str, Any]:
    """Return the part of a config that enters the key; `ValueError` for an option that cannot be cached.

    Raises `UnkeyableValue` for a value without a stable form.
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
        # The contents count, not the path.
        return hashlib.sha256(Path(value).read_bytes()).hexdigest()
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(name, item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(name, item) for key, item in sorted(value.items())}
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return described(value, f"the option {name}", _VERSIONED)
    raise UnkeyableValue(f"options.{name}", type(value).__qualname__)
