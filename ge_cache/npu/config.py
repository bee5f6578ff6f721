"""The user's choices for the `torchair` backend, as configs of torchair and npugraph_ex."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from msgspec import Struct, field

from gearcache.errors import GearSpecError, OptionError
from gearcache.ge_cache.npu.ascend import (
    npugraph_ex_module,
    torch_npu_module,
    torchair_config_class,
    torchair_module,
)
from gearcache.ge_cache.npu.options import config_component

GE_MODE = "max-autotune"
MODES = (GE_MODE, "npugraph_ex", "reduce-overhead")
#: Options of torchair's config that `CompilerConfig` has itself.
_OURS = {
    "mode": "CompilerConfig(mode=...)",
    "inference_config.dynamic_gears_merge_policy": "CompilerConfig(inference_config=InferenceConfig(...))",
}


class NpuOptions(Struct, frozen=True):
    """The user's choices: the mode, options by name, or a whole torchair config; and which side switches gears."""

    mode: str = GE_MODE
    options: Mapping[str, Any] = field(default_factory=dict)
    config: Any = None
    gear_execution: str = "static"

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            allowed = ", ".join(repr(mode) for mode in MODES)
            raise OptionError(f"option `mode` is {self.mode!r}; backend `torchair` has {allowed}")
        if self.gear_execution == "ge" and self.effective_mode != GE_MODE:
            raise GearSpecError(f"gear_execution='ge' needs mode {GE_MODE!r}; the mode is {self.effective_mode!r}")

    @property
    def effective_mode(self) -> str:
        """The mode of the torchair config, where one was given."""
        return str(self.config.mode.value) if self.config is not None else self.mode

    @property
    def is_ge(self) -> bool:
        """Whether GE compiles; otherwise an aclgraph is captured."""
        return self.effective_mode == GE_MODE

    @property
    def is_npugraph_ex(self) -> bool:
        """Return whether npugraph_ex alone compiles: it and torchair declare the same operators (torch_npu 2.13.0)."""
        return self.config is None and self.mode != GE_MODE

    def package(self) -> Any:
        """Import and return the package that compiles."""
        return npugraph_ex_module() if self.is_npugraph_ex else torchair_module()

    def component(self) -> dict[str, Any]:
        """Return every option that may change the code, for the key."""
        if self.config is not None:
            return config_component(self.config)
        if self.is_ge:
            return config_component(self.torchair_config())
        return config_component(_set_options(npugraph_ex_module().CompilerConfig(), self.npugraph_ex_options()))

    def npugraph_ex_options(self) -> dict[str, Any]:
        """Options of npugraph_ex. Outputs are cloned unless the user says otherwise: the next call overwrites them."""
        return {"clone_output": True, **self.options}

    def torchair_config(self) -> Any:
        """A torchair config of our own: each dim lists its size at every gear, so gears are merged by position."""
        if self.config is not None:
            config = copy.deepcopy(self.config)
        else:
            config = _set_options(torchair_config_class()(), self.options)
            config.mode = self.mode
        config.inference_config.dynamic_gears_merge_policy = "zip"
        if not self.is_ge:
            config.debug.aclgraph.enable_output_clone = True
        return config

    def static_kernel_options(self) -> dict[str, Any]:
        """Return the options by which an aclgraph looks for static kernels in a folder; no effect where they are off.

        The folder is named when the text is loaded: the text must not contain a path.
        """
        if self.is_ge:
            return {}
        npu = torch_npu_module().npu
        is_deterministic = torch.are_deterministic_algorithms_enabled()
        values: dict[str, Any] = {"cann_version": str(npu.utils.get_cann_version()), "compile_cache_dir": ""}
        if self.is_npugraph_ex:
            prefix = "static_kernel_compile"
            values |= {"use_cache_compile": True, "deterministic": is_deterministic}
            values["deterministic_level"] = str(npu._get_deterministic_level())
        else:
            prefix = "_aclnn_static_shape_kernel"
            values |= {"use_cache_compile": "1", "deterministic": str(int(is_deterministic))}
        return {f"{prefix}.{name}": value for name, value in values.items()}


def _set_options(config: Any, options: Mapping[str, Any]) -> Any:
    """Set options by dotted name; torchair's own errors name what is allowed."""
    for name, value in options.items():
        if name in _OURS:
            raise OptionError(f"option {name!r} is {value!r} in `options`; write `{_OURS[name]}`")
        *folders, attribute = name.split(".")
        target = config
        for folder in folders:
            target = getattr(target, folder, None)
        if target is None or not hasattr(target, attribute):
            names = ", ".join(sorted(item for item in vars(config) if not item.startswith("_")))
            raise OptionError(f"option {name!r} is unknown to {type(config).__module__}.CompilerConfig; it has {names}")
        setattr(target, attribute, value)
    return config
