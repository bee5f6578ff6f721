"""Make tensors in a trace have the strides that the kernels give them, where torch's fake tensors differ (2.13).

A dim of size 1 has an irrelevant stride, but a program can read it and gets it with a result. The kernel of `view`
computes it from the adjacent dims, fake tensors keep the old one. Batch norms and `roll` give dense results, in the
memory format of their input; fake ones keep the order of its strides, or give contiguous ones.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import _refs
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensorMode

from gearcache.ge_cache.private_torch.probe import Probes

#: Operators whose first result has the memory format of their first argument, on the CPU.
_DENSE = {
    torch.ops.aten.roll.default,
    torch.ops.aten.native_batch_norm.default,
    torch.ops.aten._native_batch_norm_legit.default,
    torch.ops.aten._native_batch_norm_legit.no_stats,
    torch.ops.aten._native_batch_norm_legit_no_training.default,
}
probes = Probes()


@probes.at(FakeTensorMode, "dispatch")
def dispatched(trace: Any, original: Any, self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Give results of fake tensors the strides of real ones."""
    results = original(self, func, types, args, kwargs)
    if func not in _DENSE:
        return results
    first, *others = results if isinstance(results, (list, tuple)) else (results,)
    if not isinstance(first, torch.Tensor) or first.device.type != "cpu":
        return results
    with self:
        dense = torch.empty_like(first, memory_format=suggest_memory_format(args[0]))
    return (dense, *others) if others else dense


@probes.at(_refs, "_reshape_view_helper")
def viewed(trace: Any, original: Any, a: torch.Tensor, *shape: Any, allow_copy: bool = True) -> torch.Tensor:
    """Make `view` and `reshape` of fake tensors return the strides of real ones."""
    result: torch.Tensor = original(a, *shape, allow_copy=allow_copy)
    sizes = [*result.shape]
    is_view = result.untyped_storage()._cdata == a.untyped_storage()._cdata
    if not is_view or not any(_is_static(size) and size <= 1 for size in sizes):
        return result
    strides = _view_strides([*a.shape], [*a.stride()], sizes)
    if strides is None or (all(map(_is_static, strides)) and tuple(strides) == result.stride()):
        return result
    return a.as_strided(sizes, strides, a.storage_offset())


def _is_static(number: Any) -> bool:
    """Whether a number can be compared without a guard."""
    return type(number) is int


def _view_strides(sizes: list[Any], strides: list[Any], new_sizes: list[Any]) -> list[Any] | None:
    """Return the strides of a view as `at::detail::computeStride` does; None where a view is impossible.

    Walks both shapes from the last dim. Dims of the old shape that are contiguous in memory form a chunk, which must be
    divided by whole dims of the new one.
    """
    new_strides: list[Any] = [0] * len(new_sizes)
    if not sizes:
        return [1] * len(new_sizes)
    if any(size == 0 for size in sizes):
        return _empty_strides(sizes, strides, new_sizes)
    place = len(new_sizes) - 1
    base, chunk, filled = strides[-1], 1, 1
    for dim in range(len(sizes) - 1, -1, -1):
        chunk = chunk * sizes[dim]
        if dim != 0 and (sizes[dim - 1] == 1 or strides[dim - 1] == chunk * base):
            continue
        while place >= 0 and (filled < chunk or new_sizes[place] == 1):
            new_strides[place] = filled * base
            filled = filled * new_sizes[place]
            place -= 1
        if filled != chunk:
            return None
        if dim > 0:
            base, chunk, filled = strides[dim - 1], 1, 1
    return new_strides if place == -1 else None


def _empty_strides(sizes: list[Any], strides: list[Any], new_sizes: list[Any]) -> list[Any]:
    if len(sizes) == len(new_sizes) and all(old == new for old, new in zip(sizes, new_sizes, strict=True)):
        return strides
    new_strides: list[Any] = [1] * len(new_sizes)
    for dim in range(len(new_sizes) - 2, -1, -1):
        new_strides[dim] = torch.sym_max(new_sizes[dim + 1], 1) * new_strides[dim + 1]  # type: ignore[no-untyped-call]
    return new_strides
