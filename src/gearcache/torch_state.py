"""Torch's global state that a trace and a compile depend on: read for a key, and set in a process that compiles.

Grad and inference mode are not in: traces have both off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

_deterministic: Any = torch.utils.deterministic
_cuda: Any = torch.backends.cuda
_mkldnn: Any = torch.backends.mkldnn
_cudnn: Any = torch.backends.cudnn
_einsum: Any = torch.backends.opt_einsum


class _Setting(NamedTuple):
    """How a part of the state is read as plain data, and set from it."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


def _write_dtype(name: str) -> None:
    torch.set_default_dtype(getattr(torch, name.removeprefix("torch.")))


def _read_deterministic() -> list[bool]:
    return [
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        _deterministic.fill_uninitialized_memory,
    ]


def _write_deterministic(values: list[bool]) -> None:
    torch.use_deterministic_algorithms(values[0], warn_only=values[1])
    _deterministic.fill_uninitialized_memory = values[2]


def _read_attention() -> list[bool]:
    return [
        _cuda.flash_sdp_enabled(),
        _cuda.mem_efficient_sdp_enabled(),
        _cuda.math_sdp_enabled(),
        _cuda.cudnn_sdp_enabled(),
    ]


def _write_attention(values: list[bool]) -> None:
    _cuda.enable_flash_sdp(values[0])
    _cuda.enable_mem_efficient_sdp(values[1])
    _cuda.enable_math_sdp(values[2])
    _cuda.enable_cudnn_sdp(values[3])


def _read_mkldnn() -> list[bool]:
    return [bool(_mkldnn.enabled), bool(_mkldnn.deterministic), bool(_mkldnn.allow_tf32)]


def _write_mkldnn(values: list[bool]) -> None:
    # torch warns of each write of the last one, also of one that changes nothing.
    present = _read_mkldnn()
    _mkldnn.set_flags(*(None if value == now else value for value, now in zip(values, present, strict=True)))


def _write_einsum(values: list[Any]) -> None:
    torch.backends.opt_einsum.enabled, torch.backends.opt_einsum.strategy = values


#: What a graph may be compiled differently for. `torch.backends` chooses kernels, and so the last bits of a result.
_SETTINGS = {
    "default_dtype": _Setting(lambda: str(torch.get_default_dtype()), _write_dtype),
    "deterministic": _Setting(_read_deterministic, _write_deterministic),
    "matmul_precision": _Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "attention": _Setting(_read_attention, _write_attention),
    "mkldnn": _Setting(_read_mkldnn, _write_mkldnn),
    "cudnn": _Setting(
        lambda: [bool(_cudnn.enabled), bool(_cudnn.benchmark), bool(_cudnn.deterministic)],
        lambda values: _cudnn.set_flags(_enabled=values[0], _benchmark=values[1], _deterministic=values[2]),
    ),
    "fast_encoder": _Setting(torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    "einsum": _Setting(lambda: [_einsum.enabled, _einsum.strategy], _write_einsum),
}


class Writes:
    """How often the settings were seen to change while a graph was made, by any thread."""

    count = 0


def settings() -> dict[str, Any]:
    """Return the settings of this process, as plain data."""
    return {name: setting.read() for name, setting in _SETTINGS.items()}


def set_settings(values: dict[str, Any]) -> None:
    """Give this process the settings of another one."""
    for name, setting in _SETTINGS.items():
        if setting.read() != values[name]:
            setting.write(values[name])


def autocast_devices() -> list[str]:
    """Return the types of the devices for which autocast is on, of those that this process may compute on."""
    accelerator = torch.accelerator.current_accelerator()
    kinds = ["cpu", *([accelerator.type] if accelerator is not None else [])]
    return [kind for kind in kinds if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)]


@contextlib.contextmanager
def outside_autocast() -> Iterator[None]:
    """Run in no autocast of the caller: a graph contains the casts where they apply."""
    with contextlib.ExitStack() as regions:
        for kind in autocast_devices():
            regions.enter_context(torch.autocast(kind, enabled=False))
        yield


def state_component() -> dict[str, Any]:
    """Return the state as a component of a key."""
    return {
        "autocast": [[device, str(torch.get_autocast_dtype(device))] for device in autocast_devices()],
        "default_device": torch.get_default_device().type,
        "threads": torch.get_num_threads(),
        **settings(),
    }
