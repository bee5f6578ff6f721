"""Choosing a backend, and importing it: no other one."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from gearcache.errors import BackendUnavailable
from gearcache.ge_cache.backend import Backend


def select_backend(name: str, module: torch.nn.Module, tensors: Iterable[torch.Tensor]) -> Backend:
    """Return the backend for a module and a call; `auto` is Inductor on CPU.

    `BackendUnavailable` when the tensors are on a device that no backend serves yet.
    """
    if name == "eager":
        from gearcache.ge_cache.eager import EagerBackend

        return EagerBackend()
    devices = {tensor.device.type for tensor in (*module.parameters(), *module.buffers(), *tensors)}
    unsupported = sorted(devices - {"cpu", "meta"})
    if unsupported:
        raise BackendUnavailable(
            "inductor",
            f"the module or its inputs are on `{unsupported[0]}`; it serves `cpu`, use backend='eager' there",
        )
    from gearcache.ge_cache.inductor import InductorBackend

    return InductorBackend()
