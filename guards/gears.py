"""Gear specs: which sizes a method is compiled for.

A spec names dims of arguments (`{"ids": {0: [1, 2, 4]}}`; paths reach into nested arguments, `[*]` stands for any
index) and their sizes. A merge policy joins the lists of all named dims: `zip` pairs them by position, `product`
takes every combination.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from gearcache.errors import GearSpecError

#: torchair's limit on the gears of one method (`_gear_utils.py`, torch_npu 2.13.0).
MAX_GEARS = 100
POLICIES = ("zip", "product")
_ATTRIBUTE = "dim_gears"


@dataclass(frozen=True)
class Axis:
    """One geared dim: an argument path, a dim index and its sizes in the user's order."""

    path: str
    dim: int
    sizes: tuple[int, ...]

    @property
    def text(self) -> str:
        """The dim as messages name it, e.g. `ids.size(0)`."""
        return f"{self.path}.size({self.dim})"

    def matches(self, path: str) -> bool:
        """Whether the path pattern covers an argument path."""
        return _pattern(self.path).fullmatch(path) is not None


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"\[\*\]", path)
    return re.compile(r"\[[^\]]+\]".join(re.escape(part) for part in parts))


@dataclass(frozen=True)
class GearSpec:
    """All axes of a method and the gears that they form."""

    axes: tuple[Axis, ...]
    policy: str = "zip"

    @property
    def gears(self) -> tuple[tuple[int, ...], ...]:
        """Distinct gears in the user's order; each has one size per axis."""
        if not self.axes:
            return ()
        columns = [axis.sizes for axis in self.axes]
        combined = itertools.product(*columns) if self.policy == "product" else zip(*columns, strict=True)
        return tuple(dict.fromkeys(combined))

    def only(self, gears: Sequence[tuple[int, ...]]) -> GearSpec:
        """Return a spec of the same dims that forms just these gears."""
        columns = zip(*gears, strict=True)
        return GearSpec(
            tuple(replace(axis, sizes=tuple(column)) for axis, column in zip(self.axes, columns, strict=True))
        )

    def to_plain(self) -> dict[str, Any]:
        """Return what goes into the key: policy and axes, in a defined order."""
        axes = sorted((axis.path, axis.dim, list(axis.sizes)) for axis in self.axes)
        return {"policy": self.policy, "axes": [list(axis) for axis in axes]}

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise GearSpecError(f"gear merge policy is {self.policy!r}; allowed: 'zip', 'product'")
        lengths = {axis.text: len(axis.sizes) for axis in self.axes}
        if self.policy == "zip" and len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {count}" for name, count in lengths.items())
            raise GearSpecError(f"with merge policy 'zip' all dims need equally many gears, but {listed}")
        total = 1
        for count in lengths.values():
            total = total * count if self.policy == "product" else max(total, count)
        if total > MAX_GEARS and len(self.gears) > MAX_GEARS:
            raise GearSpecError(f"the spec forms {len(self.gears)} gears; at most {MAX_GEARS} are allowed")


def gear_text(spec: GearSpec, sizes: tuple[int, ...]) -> str:
    """Return a gear as messages name it, e.g. `ids.size(0)=4, ids.size(1)=16`."""
    return ", ".join(f"{axis.text}={size}" for axis, size in zip(spec.axes, sizes, strict=True))


def check_sizes(name: str, dim: Any, sizes: Any, *, minimum: int = 1, rank: int | None = None) -> tuple[int, ...]:
    """Return the sizes of one dim; `GearSpecError` names the argument, the value and what is allowed."""
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise GearSpecError(f"gears of `{name}`: dim index is {dim!r} ({type(dim).__name__}); it must be an int")
    if dim < 0 or (rank is not None and dim >= rank):
        allowed = f"0 to {rank - 1}" if rank is not None else "0 or more"
        raise GearSpecError(f"gears of `{name}`: dim index is {dim}; allowed: {allowed}")
    if not isinstance(sizes, (list, tuple)):
        raise GearSpecError(
            f"gears of `{name}`, dim {dim}: the sizes are a {type(sizes).__name__}; they must be a list or tuple of int"
        )
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int):
            raise GearSpecError(f"gears of `{name}`, dim {dim}: {size!r} is a {type(size).__name__}, not an int")
        if size < 1:
            raise GearSpecError(f"gears of `{name}`, dim {dim}: {size} is not a size; a gear is at least 1")
    if not minimum <= len(sizes) <= MAX_GEARS:
        raise GearSpecError(
            f"gears of `{name}`, dim {dim}: {len(sizes)} sizes were given; allowed: {minimum} to {MAX_GEARS}"
        )
    return tuple(sizes)


def parse_gears(gears: Mapping[str, Mapping[int, Sequence[int]]] | None, policy: str = "zip") -> GearSpec:
    """Return the spec of a `gears=` argument; `GearSpecError` for anything else than `{path: {dim: [sizes]}}`."""
    if gears is None:
        return GearSpec((), policy)
    if not isinstance(gears, Mapping):
        raise GearSpecError(f"gears is a {type(gears).__name__}; it must be a dict like {{'ids': {{0: [1, 2, 4]}}}}")
    axes: list[Axis] = []
    for path, dims in gears.items():
        if not isinstance(path, str) or not re.fullmatch(r"[A-Za-z_]\w*(\.\w+|\[[^\]]+\])*", path):
            raise GearSpecError(
                f"gears names {path!r}; it must be an argument or a path such as 'cache.layers[*].keys'"
            )
        if not isinstance(dims, Mapping) or not dims:
            raise GearSpecError(f"gears of `{path}` are {dims!r}; they must be a dict like {{0: [1, 2, 4]}}")
        axes.extend(Axis(path, dim, check_sizes(path, dim, sizes)) for dim, sizes in dims.items())
    return GearSpec(tuple(axes), policy)


def set_dim_gears(tensor: torch.Tensor, dim_gears: Mapping[int, Sequence[int]]) -> None:
    """Mark dims of a tensor with the sizes that a cached method is compiled for when it is given this tensor.

    `dim_gears` maps a dim index to 2–100 sizes of at least 1. Setting the same gears again is allowed. On an
    error (`GearSpecError`, `TypeError`) nothing was marked.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"set_dim_gears takes a tensor, not a {type(tensor).__name__}")
    if not isinstance(dim_gears, Mapping) or not dim_gears:
        raise GearSpecError(f"dim_gears is {dim_gears!r}; it must be a dict like {{0: [2, 4]}}")
    checked = {dim: check_sizes("tensor", dim, sizes, minimum=2, rank=tensor.dim()) for dim, sizes in dim_gears.items()}
    present = getattr(tensor, _ATTRIBUTE, None)
    if present is not None and {dim: tuple(sizes) for dim, sizes in present.items()} != checked:
        raise GearSpecError(f"the tensor already has the gears {present!r}; they cannot be set to {dim_gears!r}")
    setattr(tensor, _ATTRIBUTE, {dim: list(sizes) for dim, sizes in checked.items()})


def gears_of_arguments(tensors: Mapping[str, torch.Tensor]) -> tuple[Axis, ...]:
    """Return the axes that `set_dim_gears` left on the tensors of a call (argument path -> tensor)."""
    return tuple(
        Axis(path, dim, tuple(sizes))
        for path, tensor in tensors.items()
        for dim, sizes in getattr(tensor, _ATTRIBUTE, {}).items()
    )
