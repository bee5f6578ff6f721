"""Parse gear specs as users write them.

A spec names dims of arguments (`{"ids": {0: [1, 2, 4]}}`; paths reach into nested arguments, `[*]` stands for any
index). A dim is given a list of sizes, a `Symbol`, or an expression of symbols. A whole shape may be given as a tuple
(`{"ids": (b, 128)}`), in which an int is a size that every call has and `None` is any size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gearcache.errors import GearSpecError
from gearcache.guards.evidence.names import a_type
from gearcache.guards.gears.spec import Axis as Axis
from gearcache.guards.gears.spec import GearSpec as GearSpec
from gearcache.guards.gears.spec import RangeAxis as RangeAxis
from gearcache.guards.gears.spec import gear_text as gear_text
from gearcache.guards.gears.symbol import SizeExpression, Symbol, check_size_list
from gearcache.guards.gears.tensor_spec import ExampleSpec, TensorSpec

_ATTRIBUTE = "dim_gears"


def check_dim(name: str, dim: Any, rank: int | None = None) -> int:
    """Return a dim index; `GearSpecError` names the argument, the value and what is allowed."""
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise GearSpecError(f"gears of `{name}`: dim index is {dim!r} ({type(dim).__name__}); it must be an int")
    if dim < 0 or (rank is not None and dim >= rank):
        allowed = f"0 to {rank - 1}" if rank is not None else "0 or more"
        raise GearSpecError(f"gears of `{name}`: dim index is {dim}; allowed: {allowed}")
    return dim


def check_sizes(name: str, dim: Any, sizes: Any, *, minimum: int = 1, rank: int | None = None) -> tuple[int, ...]:
    """Return the sizes of one dim; `GearSpecError` names the argument, the value and what is allowed."""
    return check_size_list(f"`{name}`, dim {check_dim(name, dim, rank)}", sizes, minimum=minimum)


def parse_gears(gears: Mapping[str, Any] | None, policy: str = "zip") -> GearSpec:
    """Return the spec of a `gears=` argument; `GearSpecError` for anything but `{path: {dim: sizes}}`."""
    if gears is None:
        return GearSpec((), policy)
    if not isinstance(gears, Mapping):
        raise GearSpecError(f"gears is {a_type(gears)}; it must be a dict like {{'ids': {{0: [1, 2, 4]}}}}")
    axes: list[Axis] = []
    ranges: list[RangeAxis] = []
    for path, dims in gears.items():
        if not isinstance(path, str) or not re.fullmatch(r"[^\W\d]\w*(\.\w+|\[[^\]]+\])*", path):
            raise GearSpecError(
                f"gears names {path!r}; it must be an argument or a path such as 'cache.layers[*].keys'"
            )
        is_shape = isinstance(dims, tuple)
        if not (is_shape or isinstance(dims, Mapping)) or not dims:
            raise GearSpecError(
                f"gears of `{path}` are {dims!r}; they must be a dict like {{0: [1, 2, 4]}} or a shape like (b, 128)"
            )
        for dim, sizes in enumerate(dims) if is_shape else dims.items():
            _add(axes, ranges, path, check_dim(path, dim), sizes, is_shape=is_shape)
    return GearSpec(tuple(axes), policy, tuple(ranges))


def with_specs(gears: GearSpec, specs: Mapping[str, TensorSpec]) -> GearSpec:
    """Return a spec that also has the dims of tensor specs, by argument path, as if they were shapes in `gears=`.

    None, or the size of an example tensor, leaves a dim to `gears=`; `GearSpecError` where both declare one.
    """
    axes, ranges = list(gears.axes), list(gears.ranges)
    for path, spec in specs.items():
        used_dims = taken_dims(gears, path)
        if used_dims and max(used_dims) >= spec.rank:
            raise GearSpecError(
                f"gears name dim {max(used_dims)} of `{path}`, whose spec has shape {spec.shape_text}: {spec.rank} dims"
            )
        for dim, size in enumerate(spec.shape):
            if dim not in used_dims:
                _add(axes, ranges, path, dim, size, is_shape=True)
            elif size is not None and not (isinstance(spec, ExampleSpec) and isinstance(size, int)):
                raise GearSpecError(
                    f"`{path}`, dim {dim}: its spec has shape {spec.shape_text}, and gears= declares this dim too; "
                    "write None there, or leave it out of gears="
                )
    return GearSpec(tuple(axes), gears.policy, tuple(ranges))


def taken_dims(gears: GearSpec, path: str) -> set[int]:
    """Return the dims of an argument path that a spec declares."""
    return {axis.dim for axis in (*gears.axes, *gears.ranges) if axis.matches(path)}


def _add(axes: list[Axis], ranges: list[RangeAxis], path: str, dim: int, sizes: Any, *, is_shape: bool) -> None:
    if is_shape and sizes is None:
        ranges.append(RangeAxis(path, dim, Symbol.of_any_size()))
    elif is_shape and isinstance(sizes, int) and not isinstance(sizes, bool):
        ranges.append(RangeAxis(path, dim, check_size_list(f"`{path}`, dim {dim}", [sizes])[0]))
    elif isinstance(sizes, SizeExpression):
        has_gears = {symbol.gears is not None for symbol in sizes.symbols()}
        if len(has_gears) > 1:
            raise GearSpecError(f"gears of `{path}`, dim {dim}: `{sizes.text()}` mixes symbols with and without gears")
        if has_gears == {True}:
            axes.append(Axis(path, dim, size=sizes))
        else:
            ranges.append(RangeAxis(path, dim, sizes))
    else:
        axes.append(Axis(path, dim, check_sizes(path, dim, sizes)))


def set_dim_gears(tensor: torch.Tensor, dim_gears: Mapping[int, Sequence[int]]) -> None:
    """Mark dims of a tensor with the sizes that a cached method is compiled for when it is given this tensor.

    `dim_gears` maps a dim index to 2–100 sizes of at least 1. Setting the same gears again is allowed. On an
    error (`GearSpecError`, `TypeError`) nothing was marked.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"set_dim_gears takes a tensor, not {a_type(tensor)}")
    if not isinstance(dim_gears, Mapping) or not dim_gears:
        raise GearSpecError(f"dim_gears is {dim_gears!r}; it must be a dict like {{0: [2, 4]}}")
    sizes_by_dim = {
        dim: check_sizes("tensor", dim, sizes, minimum=2, rank=tensor.dim()) for dim, sizes in dim_gears.items()
    }
    current_gears = getattr(tensor, _ATTRIBUTE, None)
    if current_gears is not None and {dim: tuple(sizes) for dim, sizes in current_gears.items()} != sizes_by_dim:
        raise GearSpecError(f"the tensor already has the gears {current_gears!r}; they cannot be set to {dim_gears!r}")
    setattr(tensor, _ATTRIBUTE, {dim: list(sizes) for dim, sizes in sizes_by_dim.items()})


def geared_dims(tensor: torch.Tensor) -> frozenset[int]:
    """Return the dims for which `set_dim_gears`, ours or torchair's, left gears on a tensor."""
    return frozenset(getattr(tensor, _ATTRIBUTE, None) or ())


def gears_of_arguments(tensors: Mapping[str, torch.Tensor]) -> tuple[Axis, ...]:
    """Return the axes that `set_dim_gears` left on the tensors of a call (argument path -> tensor)."""
    return tuple(
        Axis(path, dim, tuple(sizes))
        for path, tensor in tensors.items()
        for dim, sizes in getattr(tensor, _ATTRIBUTE, {}).items()
    )


def fill_dims(pad_values: Mapping[str, Any]) -> list[list[Any]]:
    """Return the part of `pad_values` that enters the key: which dims may be padded, not the values."""
    return sorted([path, sorted(value) if isinstance(value, Mapping) else None] for path, value in pad_values.items())
