"""Checks that stored graphs cover the declared sizes of open dims: a trace may hold for only part of them.

Each size of a range is checked. Of a large range only some are checked: those at its ends, around numbers in the
conditions of graphs, and around powers of two. Size 1 is not checked here: it has its own trace.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct

from gearcache.guards.dispatch.stored.variant import StoredGear, StoredInput
from gearcache.guards.gears.call_sizes import gear_with_dims
from gearcache.guards.gears.example_sizes import Special, owner_of
from gearcache.guards.gears.expressions import expression_function
from gearcache.guards.gears.spec import GearSpec, RangeAxis, gear_text
from gearcache.guards.gears.symbol import Symbol

#: The most combinations of sizes that are checked for a gear.
MOST_ASKED = 4096
#: The assumed end of a range without an end, and the most elements of a tensor that is checked.
END, _MOST_ELEMENTS = 65_536, 2**31 - 1

Graph = tuple[Sequence[StoredInput], StoredGear]
Sizes = Mapping[tuple[str, int], int]


class Gap(Struct, frozen=True):
    """Sizes that no stored graph takes, all for the same reason; `first` are the smallest of them."""

    first: Special
    gear: str
    #: The sizes of the open dims, in words.
    dims: str

    @property
    def text(self) -> str:
        """The gear and the sizes."""
        return gear_with_dims(self.gear, self.dims)


def gaps(spec: GearSpec, tensors: Mapping[str, torch.Tensor], graphs: Sequence[Graph]) -> list[Gap]:
    """Return the declared sizes of a call's tensors that no graph takes; nothing for gears without any graph."""
    owners: dict[Any, RangeAxis] = {}
    for axis in spec.dynamic_axes:
        if isinstance(axis.size, Symbol):
            owners.setdefault(owner_of(axis), axis)
    uncovered = []
    for gear in (spec.gears or ((),)) if owners and graphs else ():
        conditions = [_Conditions(inputs, each, tensors) for inputs, each in graphs]
        conditions = [each for each in conditions if each.is_of(_sizes(spec, tensors, gear, {}))]
        groups: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
        for point in _points(list(owners.values()), conditions) if conditions else ():
            sizes = _sizes(spec, tensors, gear, dict(zip(owners, point, strict=True)))
            if _is_too_large(tensors, sizes):
                continue
            broken = tuple(each.broken(sizes) for each in conditions)
            if all(broken):
                groups.setdefault(broken, []).append(point)
        for points in groups.values():
            dims = ((axis.path, axis.dim) for axis in owners.values())
            first = Special(gear, frozenset(), tuple(zip(dims, points[0], strict=True)))
            uncovered.append(Gap(first, gear_text(spec, gear), _text(owners.values(), points)))
    return uncovered


def _text(axes: Iterable[RangeAxis], points: list[tuple[int, ...]]) -> str:
    columns = [sorted(set(column)) for column in zip(*points, strict=True)]
    rows = [
        f"{axis.text}={column[0]}" if len(column) == 1 else f"{axis.text}={column[0]} to {column[-1]}"
        for axis, column in zip(axes, columns, strict=True)
    ]
    return ", ".join(rows)


def _sizes(
    spec: GearSpec, tensors: Mapping[str, torch.Tensor], gear: tuple[int, ...], owner_sizes: Mapping[Any, int]
) -> dict[tuple[str, int], int]:
    """Return the sizes of declared dims: those of a gear, and of open dims whose owners have a chosen size."""
    dim_sizes: list[tuple[Any, Any]] = list(zip(spec.axes, gear, strict=True))
    symbols = {owner: size for owner, size in owner_sizes.items() if isinstance(owner, Symbol)}
    for axis in spec.ranges if owner_sizes else ():
        if isinstance(axis.size, int):
            dim_sizes.append((axis, axis.size))
        elif isinstance(axis.size, Symbol):
            dim_sizes.append((axis, owner_sizes[owner_of(axis)]))
        elif set(axis.size.symbols()) <= symbols.keys():
            dim_sizes.append((axis, axis.size.value(symbols)))
    return {
        (path, axis.dim): size
        for axis, size in dim_sizes
        for path, tensor in tensors.items()
        if axis.matches(path) and axis.dim < tensor.dim()
    }


def _is_too_large(tensors: Mapping[str, torch.Tensor], sizes: Sizes) -> bool:
    return any(math.prod(_shape(path, tensor, sizes)) > _MOST_ELEMENTS for path, tensor in tensors.items())


def _shape(path: str, tensor: torch.Tensor, sizes: Sizes) -> list[int]:
    return [sizes.get((path, dim), size) for dim, size in enumerate(tensor.shape)]


def _points(axes: list[RangeAxis], conditions: Sequence[_Conditions]) -> Iterator[tuple[int, ...]]:
    """Yield the sizes to check, smallest first."""
    symbols = [axis.size for axis in axes if isinstance(axis.size, Symbol)]
    ends = [END if symbol.max is None else symbol.max for symbol in symbols]
    columns = [range(max(2, symbol.least), end + 1) for symbol, end in zip(symbols, ends, strict=True)]
    if math.prod(map(len, columns)) > MOST_ASKED * min(symbol.divisor for symbol in symbols):
        numbers = {number for graph_conditions in conditions for number in graph_conditions.numbers}
        most = max(4, int(MOST_ASKED ** (1 / len(symbols))))
        columns = [
            _sizes_to_check(column, symbol, numbers, most) for column, symbol in zip(columns, symbols, strict=True)
        ]
    allowed = [
        [size for size in column if symbol.admits(size)] for column, symbol in zip(columns, symbols, strict=True)
    ]
    return itertools.product(*allowed)


def _sizes_to_check(column: range, symbol: Symbol, numbers: Iterable[int], most: int) -> Any:
    if not column:
        return column
    step, first, last = symbol.divisor, column[0], column[-1]
    landmarks = [first, last, *numbers, *(2**power for power in range(1, last.bit_length()))]
    around = [number + offset for number in landmarks for offset in range(-step, step + 1)]
    candidates = [first + offset for offset in range(4 * step)] + around
    sizes = dict.fromkeys(size for size in candidates if size in column and symbol.admits(size))
    return sorted(list(sizes)[:most])


class _Conditions:
    """The conditions of a stored graph on the sizes of the arguments of a call."""

    def __init__(self, inputs: Sequence[StoredInput], gear: StoredGear, tensors: Mapping[str, torch.Tensor]) -> None:
        self._gear = gear
        self._inputs = [(spec.access.text, tensors.get(spec.access.text)) for spec in inputs]
        variables = {name: (tensor, kind, dim) for name, tensor, kind, dim in (*gear.symbols, *gear.measures)}
        self._checks = []
        for text in gear.conditions:
            if re.search(r"\bn\d+\b", text):  # a condition on a number says nothing about sizes
                continue
            used = tuple(name for name in variables if re.search(rf"\b{name}\b", text))
            if all(self._inputs[variables[name][0]][1] is not None for name in used):
                self._checks.append((text, expression_function(text, used), [variables[name] for name in used]))

    @property
    def numbers(self) -> set[int]:
        """The numbers in its conditions."""
        return {int(digits) for text, _, _ in self._checks for digits in re.findall(r"\b\d{1,9}\b", text)}

    def is_of(self, sizes: Sizes) -> bool:
        """Whether the graph is for one of the declared gears."""
        return not self._other_size(sizes)

    def broken(self, sizes: Sizes) -> str:
        """Return the first condition that the sizes break; empty if the graph takes them."""
        if other := self._other_size(sizes):
            return other
        shapes = [_shape(path, tensor, sizes) if tensor is not None else [] for path, tensor in self._inputs]
        for text, holds, used in self._checks:
            values = [
                shapes[tensor][dim] if kind == "size" else math.prod(shapes[tensor][dim + 1 :])
                for tensor, kind, dim in used
            ]
            if not holds(*values):
                return text
        return ""

    def _other_size(self, sizes: Sizes) -> str:
        for (path, tensor), gear_sizes in zip(self._inputs, self._gear.sizes, strict=True):
            for dim, gear_size in enumerate(gear_sizes if tensor is not None else ()):
                if gear_size is not None and sizes.get((path, dim), gear_size) != gear_size:
                    return f"{path}.size({dim})={gear_size}"
        return ""
