"""Makes calls with tensors of other sizes for tracing, and finds the dims that are to be dynamic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gearcache.cache.keys.module_tree import named_modules
from gearcache.guards.arguments import find_tensors, replace_tensors
from gearcache.guards.dispatch.other_gears import like_strides
from gearcache.guards.gears.call_sizes import call_sizes
from gearcache.guards.gears.spec import GearSpec


def enlarged_call(spec: GearSpec, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the call with its geared dims, and dims of equal index and size, at a gear whose sizes are at least 2."""
    gear = next((gear for gear in spec.gears if all(size >= 2 for size in gear)), None)
    tensors = find_tensors(arguments)
    sizes = call_sizes(spec, tensors)
    if gear is None or len(sizes) != len(spec.axes):
        return None
    replacements: dict[int, torch.Tensor] = {}
    for path, tensor in tensors.items():
        shape = list(tensor.shape)
        for axis, size, target in zip(spec.axes, sizes, gear, strict=True):
            if axis.dim < len(shape) and (axis.matches(path) or (size == 1 == tensor.size(axis.dim))):
                shape[axis.dim] = target
        if shape != list(tensor.shape):
            replacements[id(tensor)] = like_tensor(tensor, shape)
    return replace_tensors(dict(arguments), replacements)  # type: ignore[no-any-return]


def sized_call(spec: GearSpec, arguments: Mapping[str, Any], gear: tuple[int, ...]) -> dict[str, Any] | None:
    """Return a call with its geared dims at a gear; None if another dim may have to change with one of them.

    That is a dim of the same index and size: it may be a batch too, or broadcast, and the call does not show which.
    """
    tensors = find_tensors(arguments)
    sizes = call_sizes(spec, tensors)
    if len(sizes) != len(spec.axes):
        return None
    replacements: dict[int, torch.Tensor] = {}
    for path, tensor in tensors.items():
        shape = list(tensor.shape)
        geared_dims = {axis.dim for axis in spec.axes if axis.matches(path)}
        for axis, size, target in zip(spec.axes, sizes, gear, strict=True):
            if axis.matches(path):
                shape[axis.dim] = target
            elif size != target and axis.dim not in geared_dims and axis.dim < len(shape) and shape[axis.dim] == size:
                return None
        if shape != list(tensor.shape):
            replacements[id(tensor)] = like_tensor(tensor, shape)
    return replace_tensors(dict(arguments), replacements)  # type: ignore[no-any-return]


def like_dims(spec: GearSpec, arguments: Mapping[str, Any], module: torch.nn.Module) -> list[tuple[torch.Tensor, int]]:
    """Return the dims, in arguments and in the module, whose size is that of a geared dim."""
    argument_tensors = find_tensors(arguments)
    sizes = set(call_sizes(spec, argument_tensors))
    attributes = {
        str(index): {name: value for name, value in vars(child).items() if name[:1] != "_" or name == "_buffers"}
        for index, child in enumerate({id(child): child for _, child in named_modules(module)}.values())
    }
    tensors = [*argument_tensors.values(), *find_tensors(attributes).values()]
    candidates = {(id(tensor), dim): (tensor, dim) for tensor in tensors for dim in range(tensor.dim())}
    declared = {(id(tensor), dim) for tensor, dim in range_dims(spec, argument_tensors)}
    return [
        (tensor, dim)
        for tensor, dim in candidates.values()
        if tensor.size(dim) in sizes
        and not isinstance(tensor, torch.nn.Parameter)
        and (id(tensor), dim) not in declared
    ]


def range_dims(spec: GearSpec, tensors: Mapping[str, torch.Tensor]) -> list[tuple[torch.Tensor, int]]:
    """Return the dims of a call that were declared to stay dynamic; dims of size 0 and 1 cannot."""
    return [
        (tensor, axis.dim)
        for axis in spec.dynamic_axes
        for path, tensor in tensors.items()
        if axis.matches(path) and axis.dim < tensor.dim() and tensor.size(axis.dim) > 1
    ]


def like_tensor(tensor: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """Return a tensor of another shape with the dtype, device and stride order of the given one."""
    if list(tensor.shape) == shape:
        return tensor
    strides = like_strides(tensor, shape)
    return torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)
