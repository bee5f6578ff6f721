"""Extents: how a padded size is laid out inside the dims of a tensor.

A dim is a row of factors, outermost first: `[4]`, `[n]`, and after `x.view(-1, 8)` of an `(n, 4, 8)` tensor `[n, 4]`. A
factor that depends on the padded size is *padded*: only its first positions are real, the rest is filling. Two tensors
may be combined in an operation only where their factors are equal, so that real positions match real ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

Factor = tuple[Any, bool]
Dim = tuple[Factor, ...]
ONE: Dim = ()


class Extent(Struct, frozen=True):
    """The dims of one tensor.

    `bound`: all values are whole numbers from 0 to below it (row numbers, from `arange`). `is_writable`: writing
    through this tensor touches filling only where its base has filling too. `counted`: the dim along which each value
    is its own position. `fills`: dim -> the value of every position that is filling along it. `is_doubtful`: each real
    value, and each of `fills`, is either right, or NaN because filling elsewhere was infinite or NaN (0 times that).
    `origin`: where set, a tensor and how its rows were rearranged since; a NaN in one of its rows makes the whole row
    NaN here, and no other row.
    """

    dims: tuple[Dim, ...]
    bound: Any = None
    is_writable: bool = True
    counted: int | None = None
    fills: Mapping[int, Any] = field(default_factory=dict)
    is_doubtful: bool = False
    origin: tuple[Any, ...] = ()

    @property
    def is_padded(self) -> bool:
        """Whether any dim has filling."""
        return any(has_padding(dim) for dim in self.dims)

    def with_dims(self, dims: Sequence[Dim], places: Mapping[int, int] | None = None) -> Extent:
        """Return a view with other dims; `places` maps dims to the dims that have the same positions now."""
        places = places or {}
        fills = {places[dim]: value for dim, value in self.fills.items() if dim in places}
        counted = None if self.counted is None else places.get(self.counted)
        return replace(self, dims=tuple(normal(dim) for dim in dims), fills=fills, counted=counted, origin=())


def has_padding(dim: Dim) -> bool:
    """Whether a dim has filling."""
    return any(is_padded for _, is_padded in dim)


def is_prefix(dim: Dim) -> bool:
    """Return whether the real part of a dim is its beginning, so that a slice removes the filling."""
    return not any(is_padded for _, is_padded in dim[1:])


def grows(size: Any, symbol: Any) -> bool:
    """Return whether a size is known not to get smaller where a symbol of at least 1 gets larger.

    Only then is what a smaller call has the beginning of what a larger one has: `table[: 64 - n]` is not.
    """
    if symbol not in getattr(size, "free_symbols", ()) or size == symbol:
        return True
    if not all(grows(part, symbol) for part in size.args):
        return False
    if size.is_Add:
        return True
    if size.is_Mul:
        return all(part.is_nonnegative or part.is_positive for part in size.args)
    name = type(size).__name__
    if name in ("FloorDiv", "CeilDiv", "CleanDiv", "CeilToInt", "FloorToInt"):
        return all(part.is_positive and symbol not in part.free_symbols for part in size.args[1:])
    return name in ("Max", "Min")


def size_of(dim: Dim) -> Any:
    """Return the size of a dim: an int or an expression."""
    return math.prod([size for size, _ in dim])


def normal(dim: Dim) -> Dim:
    """Return a dim with adjacent unpadded factors multiplied and factors of 1 removed."""
    factors: list[Factor] = []
    for size, is_padded in dim:
        if size == 1:
            continue
        if factors and not is_padded and not factors[-1][1]:
            factors[-1] = (factors[-1][0] * size, False)
        else:
            factors.append((size, is_padded))
    return tuple(factors)


def regroup(dims: Sequence[Dim], sizes: Sequence[Any]) -> tuple[Dim, ...] | None:
    """Return the dims of a view with these sizes; None when a padded factor would be cut."""
    import sympy

    factors = [factor for dim in dims for factor in dim]
    view_dims = []
    for size in sizes:
        group: list[Factor] = []
        remaining = sympy.sympify(size)
        while remaining != 1:
            if not factors:
                return None
            factor, is_padded = factors.pop(0)
            if sympy.fraction(sympy.cancel(remaining / factor))[1] == 1:
                group.append((factor, is_padded))
                remaining = sympy.cancel(remaining / factor)
            elif not is_padded and remaining.is_Integer and isinstance(factor, int) and factor % int(remaining) == 0:
                group.append((int(remaining), False))
                factors.insert(0, (factor // int(remaining), False))
                remaining = sympy.Integer(1)
            else:
                return None
        view_dims.append(normal(tuple(group)))
    return tuple(view_dims) if all(size == 1 for size, _ in factors) else None


def kept(before: Sequence[Dim], after: Sequence[Dim]) -> dict[int, int]:
    """Return the new places of the dims that a view leaves whole: those of equal size, before equally many elements."""
    old_places, new_places = _places(before), _places(after)
    return {place: new_places[row] for row, place in old_places.items() if row in new_places}


def _places(dims: Sequence[Dim]) -> dict[tuple[Dim, Dim], int]:
    rows = [(dim, normal(tuple(factor for later in dims[at + 1 :] for factor in later))) for at, dim in enumerate(dims)]
    return {row: at for at, row in enumerate(rows) if row[0] != ONE}


def broadcast(rows: Sequence[Sequence[Dim]], sizes: Sequence[Sequence[Any]]) -> tuple[Dim, ...] | None:
    """Return the dims of an elementwise result; None where filling would be combined with real positions.

    `sizes` are the sizes of the tensors' dims: only a size of exactly 1 is repeated.
    """
    rank = max((len(tensor_dims) for tensor_dims in rows), default=0)
    dims: list[Dim] = []
    for dim in range(rank):
        present = []
        for tensor_dims, lengths in zip(rows, sizes, strict=True):
            index = dim - (rank - len(tensor_dims))
            if index >= 0 and lengths[index] != 1:
                present.append(tensor_dims[index])
        if any(other != present[0] for other in present):
            return None
        dims.append(present[0] if present else ONE)
    return tuple(dims)
