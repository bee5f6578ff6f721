"""Refuse operators whose kernels call others under autocast: a graph contains casts, and runs outside of autocast.

Most operators have an autocast kernel, which casts what they take, or compute in the dtype of what they take. The rest
were found by calling each of 489 operators of torch 2.13 on a CPU with autocast on and off, on the samples of
`torch.testing._internal.common_methods_invocations`, and by reading the kernels of modules that have no samples there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from gearcache.errors import CaptureError
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import nodes as private_nodes
from gearcache.guards.evidence.operators import is_outside
from gearcache.guards.evidence.registry import has_kernel
from gearcache.torch_state import autocast_devices

#: Operator -> what else a method can do.
_CALLS_OTHERS = {
    "aten::_transformer_encoder_layer_fwd": "call `torch.backends.mha.set_fastpath_enabled(False)` before",
    "aten::_trilinear": "replace `torch.nn.functional.bilinear` by `torch.einsum`",
    "aten::linalg_pinv": "call the method outside of autocast",
    "aten::_scaled_mm": "call the method outside of autocast",
    "aten::_scaled_mm_v2": "call the method outside of autocast",
}
_AUTOCAST_KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}


def check_autocast(method: str, captured: fx.GraphModule, recorded: fx.GraphModule) -> None:
    """Raise `CaptureError` for such an operator in a graph of which a part, or whose caller, has autocast on."""
    devices = _devices_with_autocast(captured, recorded)
    for node in recorded.graph.nodes if devices else ():
        if isinstance(node.target, private_core.OpOverload) and (way_out := _way_out(node.target, devices)):
            raise CaptureError(
                method,
                f"`{node.target}` may cast inside its kernel under `torch.autocast`, which no graph does: {way_out}",
            )


def _devices_with_autocast(captured: fx.GraphModule, recorded: fx.GraphModule) -> set[str]:
    regions = [node.args for node in captured.graph.nodes if private_nodes.enters_autocast(node)]
    devices = {str(device) for device, _, is_on, *_ in regions if is_on}
    values = [node.meta.get("val") for node in recorded.graph.find_nodes(op="placeholder")]
    used = {value.device.type for value in values if isinstance(value, torch.Tensor)}
    return devices | used.intersection(autocast_devices())


def _way_out(operator: Any, devices: set[str]) -> str:
    """Return what to do instead of calling an operator under autocast; "" where it computes as in a graph."""
    name = operator._schema.name
    if not is_outside(name):
        return _CALLS_OTHERS.get(name, "")
    keys = {_AUTOCAST_KEYS.get(device, "AutocastPrivateUse1") for device in devices}
    if all(has_kernel(operator.name(), key) for key in keys):
        return ""
    registration = f'torch.library.register_autocast("{name}", "{min(devices)}", dtype)'
    return f"say `{registration}`, or call the method outside of autocast"
