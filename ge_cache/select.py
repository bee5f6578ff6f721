"""Choose a backend, and import only that one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch

from gearcache.errors import BackendUnavailable, OptionError
from gearcache.ge_cache.backend import Backend


class BackendSettings(Protocol):
    """The options that select a backend."""

    @property
    def backend(self) -> str:
        """A name, or `auto`."""
        ...

    @property
    def mode(self) -> str | None:
        """A mode of the backend."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """Options of the backend by name."""
        ...

    @property
    def gear_execution(self) -> str:
        """Return which side switches gears."""
        ...

    @property
    def target(self) -> str:
        """Return the CPU target of compiled code."""
        ...

    @property
    def torchair_config(self) -> Any:
        """A torchair config, where the user gave one."""
        ...


def select_backend(settings: BackendSettings, module: torch.nn.Module, tensors: Iterable[torch.Tensor]) -> Backend:
    """Return the backend for a module and a call; `auto` is Inductor on CPU and torchair on an NPU.

    `BackendUnavailable` when the tensors are on a device that no backend serves yet.
    """
    if settings.backend == "eager":
        _check_execution(settings, "eager")
        from gearcache.ge_cache.eager import EagerBackend

        return EagerBackend()
    if settings.backend == "torchair":
        return _torchair(settings)
    from gearcache.cache.keys.module_tree import named_members, named_modules

    modules = named_modules(module)
    weights = [tensor for part in ("_parameters", "_buffers") for _, tensor in named_members(modules, part)]
    devices = {tensor.device.type for tensor in (*weights, *tensors)}
    if settings.backend == "auto" and "npu" in devices:
        return _torchair(settings)
    _check_execution(settings, "inductor")
    if settings.mode is not None:
        from gearcache.ge_cache.inductor.options import check_mode
        from gearcache.ge_cache.npu.config import MODES

        if settings.backend != "auto" or settings.mode not in MODES:  # modes of NPUs do not apply to a CPU
            check_mode(settings.mode)
    unsupported = sorted(devices - {"cpu", "meta"})
    if unsupported:
        raise BackendUnavailable(
            "inductor",
            f"the module or its inputs are on `{unsupported[0]}`; it serves `cpu`, use backend='eager' there",
        )
    from gearcache.ge_cache.inductor.backend import InductorBackend

    return InductorBackend(settings.options, settings.target)


def _check_execution(settings: BackendSettings, backend: str) -> None:
    if settings.gear_execution != "static":
        raise OptionError(
            f"option `gear_execution` is {settings.gear_execution!r}; only backend `torchair` has it, not `{backend}`"
        )


def _torchair(settings: BackendSettings) -> Backend:
    if settings.target != "native":
        raise OptionError(
            f"option `target` is {settings.target!r}; only backend `inductor` has it, which compiles for "
            "CPUs, not `torchair`"
        )
    from gearcache.ge_cache.npu.backend import TorchairBackend
    from gearcache.ge_cache.npu.config import NpuOptions

    options = NpuOptions(
        mode=settings.mode or "max-autotune",
        options=settings.options,
        config=settings.torchair_config,
        gear_execution=settings.gear_execution,
    )
    return TorchairBackend(options)
