"""Choose example sizes for tensors of a first call: one gear, and a distinct size for each open dim."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gearcache.guards.gears.spec import GearSpec, RangeAxis
from gearcache.guards.gears.symbol import SizeExpression, Symbol

#: Up to this many open dims, size 1 is tried in all combinations.
_COMBINED = 3
#: Where the search for a size limited only by a range begins: no divisor, no power of two, no usual width.
_FIRST = 17


class Special(Struct, frozen=True):
    """Sizes at which a call takes a trace of its own: a gear, and the open dims (their owners) of size 1.

    `sizes`: prescribed sizes of other open dims, by path and dim of the first dim of an owner.
    """

    gear: tuple[int, ...]
    ones: frozenset[Any]
    sizes: tuple[tuple[tuple[str, int], int], ...] = ()


def specials(spec: GearSpec) -> list[Special]:
    """Return all special sizes that a trace of a range does not cover: torch specialises size 1.

    With more than three open dims, each is 1 alone, and all are 1 together.
    """
    owners = list(dict.fromkeys(owner_of(axis) for axis in spec.ranges if _admits_one(axis)))
    counts = range(1, len(owners) + 1) if len(owners) <= _COMBINED else sorted({1, len(owners)})
    owner_sets = [frozenset(ones) for count in counts for ones in itertools.combinations(owners, count)]
    return [Special(gear, ones) for gear in spec.gears or ((),) for ones in owner_sets]


def _admits_one(axis: RangeAxis) -> bool:
    return isinstance(axis.size, Symbol) and axis.size.admits(1)


def owner_of(axis: RangeAxis) -> Any:
    """Return the owner of a size: a symbol, or one dim of a symbol that is not unique."""
    return axis.size if isinstance(axis.size, Symbol) and axis.size.unique else (axis.size, axis)


class ExampleSizes:
    """A size for every declared dim. Dims that differ in meaning differ in size, so a trace does not equate them."""

    def __init__(self, spec: GearSpec, fixed: set[int], special: Special | None = None) -> None:
        """`fixed`: the sizes of all dims with the same size in every call; `special`: dims that need other sizes."""
        self._spec = spec
        used_sizes = fixed | {axis.size for axis in spec.ranges if isinstance(axis.size, int)}
        gear = min(spec.gears, key=lambda gear: _likeness(gear, used_sizes), default=())
        self._gear = gear if special is None else special.gear
        used_sizes |= set(self._gear)
        prescribed_sizes = dict(special.sizes) if special is not None else {}
        self._symbols: dict[Any, int] = {}
        for axis in spec.ranges:
            if isinstance(axis.size, Symbol):
                owner = owner_of(axis)
                if owner not in self._symbols:
                    is_one = special is not None and owner in special.ones
                    size = prescribed_sizes.get((axis.path, axis.dim)) or _size_of(axis.size, used_sizes)
                    self._symbols[owner] = size = 1 if is_one else size
                    used_sizes.add(size)

    def of(self, path: str, dim: int) -> int | None:
        """Return the size of a dim; None where nothing is declared for it."""
        for axis, size in zip(self._spec.axes, self._gear, strict=True):
            if axis.dim == dim and axis.matches(path):
                return size
        for ranged in self._spec.ranges:
            if ranged.dim == dim and ranged.matches(path):
                if isinstance(ranged.size, SizeExpression):
                    return self._value(ranged.size, ranged)
                return ranged.size
        return None

    def _value(self, size: SizeExpression, owner: Any) -> int:
        if isinstance(size, Symbol):
            return self._symbols[size if size.unique else (size, owner)]
        symbol_sizes: Mapping[Symbol, int] = {symbol: self._symbols[symbol] for symbol in size.symbols()}
        return size.value(symbol_sizes)


def _likeness(gear: tuple[int, ...], used_sizes: set[int]) -> tuple[bool, int]:
    """Return how ambiguous the sizes of a gear are: a trace at 0 or 1 shows least, then one at equal sizes."""
    return min(gear) < 2, len(gear) - len(set(gear)) + sum(size in used_sizes for size in gear)


def _size_of(symbol: Symbol, used_sizes: set[int]) -> int:
    first = max(symbol.least, _FIRST)
    above = range(first, first + (len(used_sizes) + 2) * symbol.divisor)
    below = range(first - 1, symbol.least - 1, -1)
    allowed = [size for size in (*above, *below) if symbol.admits(size)]
    return next(
        (size for size in allowed if size > 1 and size not in used_sizes), allowed[0] if allowed else symbol.least
    )
