"""Apply a gear spec to one call: the sizes that the call has in the declared dims."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from gearcache.guards.gears.spec import Axis, GearSpec, gear_text
from gearcache.guards.gears.symbol import Symbol


def call_sizes(spec: GearSpec, tensors: Mapping[str, torch.Tensor]) -> tuple[int, ...]:
    """Return one size per axis of a spec, for tensors by argument path; fewer where the call lacks such a dim."""
    sizes = []
    for axis in spec.axes:
        matching_tensors = [tensor for path, tensor in tensors.items() if axis.matches(path)]
        if matching_tensors and axis.dim < matching_tensors[0].dim():
            sizes.append(matching_tensors[0].size(axis.dim))
    return tuple(sizes)


def open_dims(spec: GearSpec, tensors: Mapping[str, torch.Tensor]) -> dict[tuple[str, int], int]:
    """Return the sizes of the dims of a call that stay dynamic, by argument path and dim."""
    return {
        (path, axis.dim): tensor.size(axis.dim)
        for axis in spec.dynamic_axes
        for path, tensor in tensors.items()
        if axis.matches(path) and axis.dim < tensor.dim()
    }


def special_text(spec: GearSpec, tensors: Mapping[str, torch.Tensor]) -> str:
    """Return the name of a call with open dims of size 0 or 1, which take traces of their own; else empty."""
    dims, sizes = special_dims(spec, tensors), call_sizes(spec, tensors)
    gear = gear_text(spec, sizes) if spec.axes and len(sizes) == len(spec.axes) else ""
    return gear_with_dims(gear, dims) if dims else ""


def special_dims(spec: GearSpec, tensors: Mapping[str, torch.Tensor]) -> str:
    """Return the open dims of a call of size 0 or 1, in words."""
    return ", ".join(f"{path}.size({dim})={size}" for (path, dim), size in open_dims(spec, tensors).items() if size < 2)


def gear_with_dims(gear: str, dims: str) -> str:
    """Return a gear and further dims in words; either may be empty."""
    return ", ".join(filter(None, [gear, dims]))


def without(spec: GearSpec, names: Collection[str]) -> GearSpec:
    """Return a spec without the dims of some parameters, and without sizes computed from theirs."""
    axis_indices = [index for index, axis in enumerate(spec.axes) if axis.argument not in names]
    ranges = tuple(axis for axis in spec.ranges if axis.argument not in names)
    if len(axis_indices) == len(spec.axes) and len(ranges) == len(spec.ranges):
        return spec
    bare_symbols = {axis.size for axis in ranges if isinstance(axis.size, Symbol)}
    ranges = tuple(
        axis for axis in ranges if isinstance(axis.size, int) or bare_symbols.issuperset(axis.size.symbols())
    )
    gears = dict.fromkeys(tuple(gear[index] for index in axis_indices) for gear in spec.gears)
    columns = list(zip(*gears, strict=True))
    axes = [spec.axes[index] for index in axis_indices]
    return GearSpec(
        tuple(Axis(axis.path, axis.dim, tuple(column)) for axis, column in zip(axes, columns, strict=True)),
        ranges=ranges,
    )
