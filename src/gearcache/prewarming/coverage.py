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

from gearcache.guards.dispatch.variant import StoredGear, StoredInput
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
    text: str


def gaps(spec: GearSpec, tensors: Mapping[str, torch.Tensor], graphs: Sequence[Graph]) -> list[Gap]:
    """Return the declared sizes of a call's tensors that no graph takes; nothing for gears without any graph."""
    owners: dict[Any, RangeAxis] = {}
    for axis in spec.dynamic_axes:
        if isinstance(axis.size, Symbol):
            owners.setdefault(owner_of(axis), axis)
    found = []
    for gear in (spec.gears or ((),)) if owners and graphs else ():
        known = [_Conditions(inputs, each, tensors) for inputs, each in graphs]
        known = [each for each in known if each.is_of(_sizes(spec, tensors, gear, {}))]
        groups: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
        for point in _points(list(owners.values()), known) if known else ():
            sizes = _sizes(spec, tensors, gear, dict(zip(owners, point, strict=True)))
            if _is_too_large(tensors, sizes):
                continue
            broken = tuple(each.broken(sizes) for each in known)
            if all(broken):
                groups.setdefault(broken, []).append(point)
        for points in groups.values():
            named = ((axis.path, axis.dim) for axis in owners.values())
            first = Special(gear, frozenset(), tuple(zip(named, points[0], strict=True)))
            found.append(Gap(first, ", ".join(filter(None, [gear_text(spec, gear), _text(owners.values(), points)]))))
    return found


def _text(axes: Iterable[RangeAxis], points: list[tuple[int, ...]]) -> str:
    columns = [sorted(set(column)) for column in zip(*points, strict=True)]
    rows = [
        f"{axis.text}={column[0]}" if len(column) == 1 else f"{axis.text}={column[0]} to {column[-1]}"
        for axis, column in zip(axes, columns, strict=True)
    ]
    return ", ".join(rows)


def _sizes(
    spec: GearSpec, tensors: Mapping[str, torch.Tensor], gear: tuple[int, ...], chosen: Mapping[Any, int]
) -> dict[tuple[str, int], int]:
    """Return the sizes of declared dims: those of a gear, and of open dims whose owners have a chosen size."""
    rows: list[tuple[Any, Any]] = list(zip(spec.axes, gear, strict=True))
    symbols = {owner: size for owner, size in chosen.items() if isinstance(owner, Symbol)}
    for axis in spec.ranges if chosen else ():
        if isinstance(axis.size, int):
            rows.append((axis, axis.size))
        elif isinstance(axis.size, Symbol):
            rows.append((axis, chosen[owner_of(axis)]))
        elif set(axis.size.symbols()) <= symbols.keys():
            rows.append((axis, axis.size.value(symbols)))
    return {
        (path, axis.dim): size
        for axis, size in rows
        for path, tensor in tensors.items()
        if axis.matches(path) and axis.dim < tensor.dim()
    }


def _is_too_large(tensors: Mapping[str, torch.Tensor], sizes: Sizes) -> bool:
    return any(math.prod(_shape(path, tensor, sizes)) > _MOST_ELEMENTS for path, tensor in tensors.items())


def _shape(path: str, tensor: torch.Tensor, sizes: Sizes) -> list[int]:
    return [sizes.get((path, dim), size) for dim, size in enumerate(tensor.shape)]


def _points(axes: list[RangeAxis], known: Sequence[_Conditions]) -> Iterator[tuple[int, ...]]:
    """Yield the sizes to check, smallest first."""
    symbols = [axis.size for axis in axes if isinstance(axis.size, Symbol)]
    ends = [END if symbol.max is None else symbol.max for symbol in symbols]
    columns = [range(max(2, symbol.least), end + 1) for symbol, end in zip(symbols, ends, strict=True)]
    if math.prod(map(len, columns)) > MOST_ASKED * min(symbol.divisor for symbol in symbols):
        numbers = {number for each in known for number in each.numbers}
        most = max(4, int(MOST_ASKED ** (1 / len(symbols))))
        columns = [_chosen(column, symbol, numbers, most) for column, symbol in zip(columns, symbols, strict=True)]
    allowed = [
        [size for size in column if symbol.admits(size)] for column, symbol in zip(columns, symbols, strict=True)
    ]
    return itertools.product(*allowed)


def _chosen(column: range, symbol: Symbol, numbers: Iterable[int], most: int) -> Any:
    if not column:
        return column
    step, first, last = symbol.divisor, column[0], column[-1]
    near = [first, last, *numbers, *(2**power for power in range(1, last.bit_length()))]
    around = [number + offset for number in near for offset in range(-step, step + 1)]
    listed = [first + offset for offset in range(4 * step)] + around
    kept = dict.fromkeys(size for size in listed if size in column and symbol.admits(size))
    return sorted(list(kept)[:most])


class _Conditions:
    """The conditions of a stored graph on the sizes of the arguments of a call."""

    def __init__(self, inputs: Sequence[StoredInput], gear: StoredGear, tensors: Mapping[str, torch.Tensor]) -> None:
        self._gear = gear
        self._inputs = [(stored.access.text, tensors.get(stored.access.text)) for stored in inputs]
        named = {name: (tensor, kind, dim) for name, tensor, kind, dim in (*gear.symbols, *gear.measures)}
        self._rows = []
        for text in gear.conditions:
            if re.search(r"\bn\d+\b", text):  # a condition on a number says nothing about sizes
                continue
            used = tuple(name for name in named if re.search(rf"\b{name}\b", text))
            if all(self._inputs[named[name][0]][1] is not None for name in used):
                self._rows.append((text, expression_function(text, used), [named[name] for name in used]))

    @property
    def numbers(self) -> set[int]:
        """The numbers in its conditions."""
        return {int(digits) for text, _, _ in self._rows for digits in re.findall(r"\b\d{1,9}\b", text)}

    def is_of(self, sizes: Sizes) -> bool:
        """Whether the graph is for one of the declared gears."""
        return not self._other_size(sizes)

    def broken(self, sizes: Sizes) -> str:
        """Return the first condition that the sizes break; empty if the graph takes them."""
        if other := self._other_size(sizes):
            return other
        shapes = [_shape(path, tensor, sizes) if tensor is not None else [] for path, tensor in self._inputs]
        for text, holds, used in self._rows:
            values = [
                shapes[tensor][dim] if kind == "size" else math.prod(shapes[tensor][dim + 1 :])
                for tensor, kind, dim in used
            ]
            if not holds(*values):
                return text
        return ""

    def _other_size(self, sizes: Sizes) -> str:
        for (path, tensor), row in zip(self._inputs, self._gear.sizes, strict=True):
            for dim, wanted in enumerate(row if tensor is not None else ()):
                if wanted is not None and sizes.get((path, dim), wanted) != wanted:
                    return f"{path}.size({dim})={wanted}"
        return ""
