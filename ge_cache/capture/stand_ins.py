"""Stand-ins: memory for tensors that have none, so that a model on `meta` or with fake tensors traces like a real one.

While they are installed, every such tensor of the process is an ordinary tensor of the target device with the same
sizes, strides, dtype, storage sharing and object identity. Key, trace, guards and evidence equal those of a process
with the real weights. The memory is never written or read, so on the CPU its pages cost nothing.
"""

from __future__ import annotations

import contextlib
import gc
import math
import mmap
import sys
from collections.abc import Iterator

import torch

from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import fake as private_fake

#: Storages of at least this many bytes get pages of their own, which exist only once they are touched.
_MAPPED = 1 << 20
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


@contextlib.contextmanager
def stand_ins(device: torch.device) -> Iterator[int]:
    """Replace all meta and fake tensors of this process by stand-ins, and restore them at the end; yields their number.

    Tensors on `meta` move to `device`, fake tensors to their pretended device. Fake modes and a default device of
    `meta` are off meanwhile. Not for use while other threads work with such tensors.
    """
    with private_fake.without_meta_modes():
        exchanged: list[tuple[torch.Tensor, torch.Tensor]] = []
        try:
            storages: dict[tuple[int, str], torch.UntypedStorage] = {}
            for tensor in _without_memory():
                stand_in = _stand_in(tensor, device, storages)
                try:
                    private_fake.swap_tensors(tensor, stand_in)
                except RuntimeError:
                    if private_fake.is_fake(tensor):  # left over from a refused trace, which refers to it weakly
                        continue
                    raise
                exchanged.append((tensor, stand_in))
            yield len(exchanged)
        finally:
            for tensor, stand_in in reversed(exchanged):
                private_fake.swap_tensors(tensor, stand_in)


def _without_memory() -> list[torch.Tensor]:
    kinds = set(private_fake.with_subclasses(torch.Tensor))
    # Millions of objects. By `type`, as `isinstance` asks weak proxies for their object.
    return [value for value in gc.get_objects() if type(value) in kinds and _needs_stand_in(value)]


def _needs_stand_in(tensor: torch.Tensor) -> bool:
    if type(tensor) in _PLAIN:
        return tensor.is_meta and tensor.layout == torch.strided
    return private_fake.is_fake(tensor) and _has_numbers_only(tensor)


def _has_numbers_only(tensor: torch.Tensor) -> bool:
    """Return whether a fake tensor has fixed sizes; others are left over from an earlier trace."""
    if tensor.layout != torch.strided:
        return False
    return all(type(size) is int for size in (*tensor.shape, *tensor.stride(), tensor.storage_offset()))


def _stand_in(
    tensor: torch.Tensor, device: torch.device, storages: dict[tuple[int, str], torch.UntypedStorage]
) -> torch.Tensor:
    target = device if tensor.device.type == "meta" else tensor.device
    key = (private_core.storage_key(tensor), str(target))
    if key not in storages:
        reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        byte_count = (tensor.storage_offset() + (reach if tensor.numel() else 0)) * tensor.element_size()
        storages[key] = _storage(max(int(byte_count), int(tensor.untyped_storage().nbytes())), target)
    stand_in = torch.empty(0, dtype=tensor.dtype, device=target)
    stand_in.set_(storages[key], tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))
    kind = next(kind for kind in (torch.nn.Parameter, torch.nn.Buffer, torch.Tensor) if isinstance(tensor, kind))
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(stand_in, requires_grad=tensor.requires_grad)
    if kind is torch.nn.Buffer:
        return torch.nn.Buffer(stand_in)
    return stand_in.requires_grad_(tensor.requires_grad)


def _storage(size: int, device: torch.device) -> torch.UntypedStorage:
    if device.type != "cpu" or size < _MAPPED or sys.platform != "linux":
        return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()
    # Not reserved: a model larger than this host's memory can be compiled on it.
    reserve_nothing = 0x4000  # `MAP_NORESERVE`, absent from `mmap` before Python 3.13
    pages = mmap.mmap(
        -1,
        math.ceil(size / mmap.PAGESIZE) * mmap.PAGESIZE,
        flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | reserve_nothing,
    )
    return torch.frombuffer(pages, dtype=torch.uint8).untyped_storage()
