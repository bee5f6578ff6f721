"""A gear spec: geared dims, the gears that they form, and dims of a declared range.

Plain lists are joined by the merge policy (`zip` pairs them by position, `product` takes every combination); each
symbol is one more factor of a product. Dims of symbols without gears form no gears: they stay dynamic, and every call
is checked against the declaration.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import force_setattr

from gearcache.errors import GearSpecError
from gearcache.guards.gears.expressions import expression_function
from gearcache.guards.gears.symbol import MAX_GEARS, SizeExpression, Symbol, check_names

POLICIES = ("zip", "product")


class _Dim(Struct, frozen=True):
    path: str
    dim: int

    @property
    def text(self) -> str:
        """The dim as messages name it, e.g. `ids.size(0)`."""
        return f"{self.path}.size({self.dim})"

    @property
    def argument(self) -> str:
        """The name of the parameter at which the path begins."""
        return re.split(r"[.\[]", self.path, maxsplit=1)[0]

    def matches(self, path: str) -> bool:
        """Whether the path pattern covers an argument path."""
        return _pattern(self.path).fullmatch(path) is not None


def _pattern(path: str) -> re.Pattern[str]:
    quoted = re.sub(r"""\["([^"'\\]+)"\]""", r"['\1']", path)
    parts = re.split(r"\[\*\]", quoted)
    return re.compile(r"\[[^\]]+\]".join(re.escape(part) for part in parts))


class Axis(_Dim, frozen=True):
    """One geared dim: an argument path, a dim index, and its sizes in the user's order or an expression for them."""

    sizes: tuple[int, ...] = ()
    size: SizeExpression | None = None


class RangeAxis(_Dim, frozen=True):
    """A dim that is not a gear: of any size that its symbol allows, or of one fixed size."""

    size: SizeExpression | int


class RangeCheck(Struct, frozen=True):
    """What a declared range requires of one dim: conditions as source, and a text for them."""

    text: str
    conditions: list[str]
    allowed: str


class GearSpec(Struct, frozen=True, dict=True):
    """All axes of a method and the gears that they form; axes are in the order of their paths and dims."""

    axes: tuple[Axis, ...]
    policy: str = "zip"
    ranges: tuple[RangeAxis, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is declared."""
        return bool(self.axes or self.ranges)

    @cached_property
    def gears(self) -> tuple[tuple[int, ...], ...]:
        """Distinct gears, sizes in the user's order; each has one size per axis."""
        if not self.axes:
            return ()
        list_axes = [axis for axis in self.axes if axis.size is None]
        columns = [axis.sizes for axis in list_axes]
        merged = itertools.product(*columns) if self.policy == "product" else zip(*columns, strict=True)
        choices: list[Any] = [
            list(merged) if list_axes else [()],
            *(_gears_of(symbol) for symbol, _ in self._variables),
        ]
        gears = [self._gear(choice[0], choice[1:]) for choice in itertools.product(*choices)]
        return tuple(dict.fromkeys(gears))

    def only(self, gears: Sequence[tuple[int, ...]]) -> GearSpec:
        """Return a spec of the same dims that forms just these gears."""
        columns = zip(*gears, strict=True)
        pairs = zip(self.axes, columns, strict=True)
        return GearSpec(tuple(Axis(axis.path, axis.dim, tuple(column)) for axis, column in pairs), ranges=self.ranges)

    def _gear(self, list_sizes: tuple[int, ...], values: tuple[int, ...]) -> tuple[int, ...]:
        rest = iter(list_sizes)
        variable_values = dict(zip(self._variables, values, strict=True))
        sizes = []
        for axis in self.axes:
            if axis.size is None:
                sizes.append(next(rest))
                continue
            symbol_values = {symbol: variable_values[_variable(symbol, axis)] for symbol in axis.size.symbols()}
            size = axis.size.value(symbol_values)
            if size < 1:
                at = ", ".join(f"{symbol.text()}={value}" for symbol, value in symbol_values.items())
                raise GearSpecError(
                    f"`{axis.text}` is {axis.size.text()}, which is {size} at {at}; a gear is at least 1"
                )
            sizes.append(size)
        return tuple(sizes)

    @cached_property
    def _variables(self) -> list[tuple[Symbol, _Dim | None]]:
        """Return what varies by itself: a symbol, or one dim of a symbol that is not unique."""
        return list(
            dict.fromkeys(
                _variable(symbol, axis) for axis in self.axes if axis.size is not None for symbol in axis.size.symbols()
            )
        )

    @property
    def leaves_out(self) -> bool:
        """Whether gears that the trace shows to be impossible are left out (`product` of lists), not refused."""
        return self.policy == "product" and all(axis.size is None for axis in self.axes)

    def to_plain(self) -> dict[str, Any]:
        """Return the data that enters the key; symbols are numbered, not named."""
        ranges = sorted(self.ranges, key=attrgetter("path", "dim"))
        sizes: list[Any] = [axis.size for axis in self.axes] + [axis.size for axis in ranges]
        symbols = dict.fromkeys(
            symbol for size in sizes if isinstance(size, SizeExpression) for symbol in size.symbols()
        )
        names = {symbol: f"s{number}" for number, symbol in enumerate(symbols)}

        def plain(size: Any) -> Any:
            return size.text(names) if isinstance(size, SizeExpression) else size

        data: dict[str, Any] = {
            "policy": self.policy,
            "axes": [[axis.path, axis.dim, plain(axis.size) or list(axis.sizes)] for axis in self.axes],
        }
        if symbols:
            data["symbols"] = [symbol.to_plain() for symbol in symbols]
        if ranges:
            data["ranges"] = [[axis.path, axis.dim, plain(axis.size)] for axis in ranges]
        return data

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise GearSpecError(f"gear merge policy is {self.policy!r}; allowed: 'zip', 'product'")
        # Stored gears are compared by their texts, also with those of a process that wrote another order.
        force_setattr(self, "axes", tuple(sorted(self.axes, key=attrgetter("path", "dim"))))
        axes: list[Axis | RangeAxis] = [*self.axes, *self.ranges]
        check_names((axis.text, axis.size) for axis in axes)
        lengths = {axis.text: len(axis.sizes) for axis in self.axes if axis.size is None}
        if self.policy == "zip" and len(set(lengths.values())) > 1:
            counts_text = ", ".join(f"{name} has {count}" for name, count in lengths.items())
            raise GearSpecError(f"with merge policy 'zip' all dims need equally many gears, but {counts_text}")
        total = math.prod(lengths.values()) if self.policy == "product" else max(lengths.values(), default=1)
        total *= math.prod(len(_gears_of(symbol)) for symbol, _ in self._variables)
        if total > 100 * MAX_GEARS or (total > MAX_GEARS and len(self.gears) > MAX_GEARS):
            count = total if total > 100 * MAX_GEARS else len(self.gears)
            raise GearSpecError(f"the spec forms {count} gears; at most {MAX_GEARS} are allowed")
        _ = self.gears  # a size below 1 is reported here
        self._check_ranges()

    # -- ranges ------------------------------------------------------------------------------------------

    def _check_ranges(self) -> None:
        bare = {axis.size for axis in self.ranges if isinstance(axis.size, Symbol)}
        for axis in self.ranges:
            if isinstance(axis.size, (int, Symbol)):
                continue
            for symbol in axis.size.symbols():
                if symbol not in bare or not symbol.unique:
                    reason = "is not unique" if symbol in bare else "is the whole size of no dim"
                    raise GearSpecError(
                        f"`{axis.text}` is {axis.size.text()}, but symbol `{symbol.text()}` {reason}, "
                        "so a call does not say what it is; give it gears, or name a dim that it is by itself"
                    )

    @property
    def dynamic_axes(self) -> tuple[RangeAxis, ...]:
        """The dims that stay dynamic."""
        return tuple(axis for axis in self.ranges if not isinstance(axis.size, int))

    def range_checks(self, sizes: Iterable[tuple[RangeAxis, str, str]]) -> list[RangeCheck]:
        """Return the conditions on dims given as `(axis, name of the dim, its size as source)`."""
        occurrences = list(sizes)
        values: dict[Symbol, str] = {}
        owners: dict[Symbol, str] = {}
        checks = []
        for axis, name, size in sorted(occurrences, key=lambda item: not isinstance(item[0].size, Symbol)):
            if isinstance(axis.size, int):
                checks.append(RangeCheck(name, [f"{size} == {axis.size}"], str(axis.size)))
            elif not isinstance(axis.size, Symbol):
                if all(symbol in values for symbol in axis.size.symbols()):
                    expected = axis.size.text({symbol: values[symbol] for symbol in axis.size.symbols()})
                    where = ", ".join(f"{symbol.text()} is {owners[symbol]}" for symbol in axis.size.symbols())
                    checks.append(RangeCheck(name, [f"{size} == {expected}"], f"{axis.size.text()}, where {where}"))
            elif axis.size in values and axis.size.unique:
                allowed = f"the size of {owners[axis.size]} (both are `{axis.size.text()}`)"
                checks.append(RangeCheck(name, [f"{size} == {values[axis.size]}"], allowed))
            else:
                values[axis.size], owners[axis.size] = size, name
                checks.append(RangeCheck(name, axis.size.conditions(size), axis.size.range_text))
        return checks

    def range_problem(self, tensors: Mapping[str, torch.Tensor]) -> tuple[str, str, str] | None:
        """Return (argument, found, allowed) for the first dim of a call that is outside its range, or None."""
        occurrences = [
            (axis, f"{path}.size({axis.dim})", str(tensor.size(axis.dim)))
            for axis in self.ranges
            for path, tensor in tensors.items()
            if axis.matches(path) and axis.dim < tensor.dim()
        ]
        sizes = {name: size for _, name, size in occurrences}
        for check in self.range_checks(occurrences):
            for condition in check.conditions:
                if not expression_function(condition, ())():
                    path = check.text.rpartition(".size(")[0]
                    return path, f"outside the declared sizes: {check.text} is {sizes[check.text]}", check.allowed
        return None


def gear_text(spec: GearSpec, sizes: tuple[int, ...]) -> str:
    """Return a gear as messages name it, e.g. `ids.size(0)=4, ids.size(1)=16`."""
    return ", ".join(f"{axis.text}={size}" for axis, size in zip(spec.axes, sizes, strict=True))


def _variable(symbol: Symbol, axis: _Dim) -> tuple[Symbol, _Dim | None]:
    return symbol, None if symbol.unique else axis


def _gears_of(symbol: Symbol) -> tuple[int, ...]:
    assert symbol.gears is not None, "axes hold symbols with gears only"
    return symbol.gears
