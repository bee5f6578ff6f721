"""Symbols: named sizes that several dims of a gear spec share.

`b = Symbol("b", gears=[2, 4])` in `{"x": {0: b}, "mask": {0: b, 1: 10 * b}}` makes two gears, not eight: a symbol has
one value wherever it is used. Arithmetic (`+ - * // %`) with numbers and other symbols makes a `SizeExpression`. The
parameters are those of MindSpore's `Symbol`, plus `name` and `gears`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gearcache.errors import GearSpecError
from gearcache.guards.evidence.names import a_type

#: torchair's limit on the gears of one method (`_gear_utils.py`, torch_npu 2.13.0).
MAX_GEARS = 100
_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


class SizeExpression:
    """A size computed from symbols. `b == c` says whether two symbols are the same."""

    def symbols(self) -> tuple[Symbol, ...]:
        """Return the symbols that it contains, in order of first appearance."""
        raise NotImplementedError

    def value(self, sizes: Mapping[Symbol, int]) -> int:
        """Return the size, given the size of each symbol."""
        raise NotImplementedError

    def text(self, names: Mapping[Symbol, str] | None = None) -> str:
        """Return it as Python source, with the user's names of the symbols or with others."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.text()

    def __add__(self, other: Any) -> SizeExpression:
        return _join("+", self, other)

    def __radd__(self, other: Any) -> SizeExpression:
        return _join("+", other, self)

    def __sub__(self, other: Any) -> SizeExpression:
        return _join("-", self, other)

    def __rsub__(self, other: Any) -> SizeExpression:
        return _join("-", other, self)

    def __mul__(self, other: Any) -> SizeExpression:
        return _join("*", self, other)

    def __rmul__(self, other: Any) -> SizeExpression:
        return _join("*", other, self)

    def __floordiv__(self, other: Any) -> SizeExpression:
        return _join("//", self, other)

    def __mod__(self, other: Any) -> SizeExpression:
        return _join("%", self, other)


class _Operation(SizeExpression):
    def __init__(self, name: str, left: SizeExpression | int, right: SizeExpression | int) -> None:
        self._name, self._left, self._right = name, left, right

    def symbols(self) -> tuple[Symbol, ...]:
        parts = [part for part in (self._left, self._right) if isinstance(part, SizeExpression)]
        return tuple(dict.fromkeys(symbol for part in parts for symbol in part.symbols()))

    def value(self, sizes: Mapping[Symbol, int]) -> int:
        left, right = (
            part.value(sizes) if isinstance(part, SizeExpression) else part for part in (self._left, self._right)
        )
        return _OPERATORS[self._name](left, right)

    def text(self, names: Mapping[Symbol, str] | None = None) -> str:
        left, right = (
            f"({part.text(names)})"
            if isinstance(part, _Operation)
            else part.text(names)
            if isinstance(part, SizeExpression)
            else str(part)
            for part in (self._left, self._right)
        )
        return f"{left} {self._name} {right}"


def _join(name: str, left: Any, right: Any) -> SizeExpression:
    for part in (left, right):
        if isinstance(part, bool) or not isinstance(part, (int, SizeExpression)):
            raise TypeError(f"a size is an int or a symbol, not {a_type(part)}: {left!r} {name} {right!r}")
    if name in ("//", "%") and isinstance(right, int) and right < 1:
        raise GearSpecError(f"`{left} {name} {right}`: a size is divided by {right}; the divisor must be at least 1")
    return _Operation(name, left, right)


class Symbol(SizeExpression):
    """One named size.

    - `name`: two symbols of one name are one symbol, and a spec in which they differ in anything else is refused.
      Without a name each object is its own symbol. Renaming one in a whole spec changes nothing.
    - `gears`: the sizes to compile a static graph for. Without them the dim stays dynamic: one graph serves all
      sizes of the range, and each call is checked against it.
    - `min`, `max`: least and greatest size; `max=None` or 0 means no limit. Only None in a shape admits size 0.
    - `divisor`, `remainder`: sizes are `divisor * n + remainder` with `n` of at least 1.
    - `unique`: True (unlike MindSpore's default) makes all dims of this symbol one size; False shares only gears and
      range, and each dim has a size of its own.

    Raises `TypeError` for a value of another type, `GearSpecError` for an impossible value.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        gears: Sequence[int] | None = None,
        min: int = 1,
        max: int | None = None,
        divisor: int = 1,
        remainder: int = 0,
        unique: bool = True,
    ) -> None:
        if name is not None and (not isinstance(name, str) or not name.isidentifier()):
            raise TypeError(f"Symbol: name is {name!r}; it must be an identifier")
        label = f"Symbol `{name}`" if name else "Symbol"
        for option, value in (("min", min), ("max", max), ("divisor", divisor), ("remainder", remainder)):
            if isinstance(value, bool) or not isinstance(value, int):
                if option == "max" and value is None:
                    continue
                raise TypeError(f"{label}: {option} is {value!r} ({type(value).__name__}); it must be an int")
        if not isinstance(unique, bool):
            raise TypeError(f"{label}: unique is {unique!r}; it must be True or False")
        if min < 1:
            raise GearSpecError(f"{label}: min is {min}; it must be at least 1")
        if divisor < 1:
            raise GearSpecError(f"{label}: divisor is {divisor}; it must be at least 1")
        if not 0 <= remainder < divisor:
            raise GearSpecError(f"{label}: remainder is {remainder}; allowed: 0 to {divisor - 1}")
        if max is not None and max != 0 and max < min:
            raise GearSpecError(f"{label}: max is {max}, less than min={min}; None or 0 means no limit")
        self.name = name
        self.min, self.max = min, max or None
        self.divisor, self.remainder, self.unique = divisor, remainder, unique
        self.gears = None if gears is None else self._check_gears(gears)

    @staticmethod
    def of_any_size() -> Symbol:
        """Return the symbol for None in a shape: any size, 0 included."""
        symbol = Symbol()
        symbol.min = 0
        return symbol

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Symbol) or self.name is None:
            return self is other
        return self.name == other.name and self.to_plain() == other.to_plain()

    def __hash__(self) -> int:
        return object.__hash__(self) if self.name is None else hash(self.name)

    def _check_gears(self, gears: Sequence[int]) -> tuple[int, ...]:
        sizes = check_size_list(f"symbol `{self.text()}`", gears)
        for size in sizes:
            if not self.admits(size):
                raise GearSpecError(f"symbol `{self.text()}`: gear {size} is not one of its sizes ({self.range_text})")
        return sizes

    @property
    def least(self) -> int:
        """The least size: `min`, and with a divisor at least one full step."""
        return max(self.min, self.divisor + self.remainder if self.divisor > 1 else 0)

    def admits(self, size: int) -> bool:
        """Whether a size is in the range."""
        in_range = size >= self.least and (self.max is None or size <= self.max)
        return in_range and size % self.divisor == self.remainder

    @property
    def range_text(self) -> str:
        """Return the range as messages name it, e.g. `2 to 64 in steps of 2 from 2`."""
        upper = f"{self.least} to {self.max}" if self.max is not None else f"{self.least} or more"
        if self.divisor == 1:
            return upper
        return f"{upper}, of the form {self.divisor} * n" + (f" + {self.remainder}" if self.remainder else "")

    def conditions(self, size: str) -> list[str]:
        """Return the range as conditions on a size given as source text."""
        conditions = [f"{size} >= {self.least}"] if self.least > 0 else []
        if self.max is not None:
            conditions.append(f"{size} <= {self.max}")
        if self.divisor > 1:
            conditions.append(f"{size} % {self.divisor} == {self.remainder}")
        return conditions

    @property
    def facts(self) -> str:
        """Return all facts but the name, as text for messages."""
        sizes = self.range_text if self.gears is None else f"gears {list(self.gears)}, {self.range_text}"
        return sizes if self.unique else f"{sizes}, not unique"

    def to_plain(self) -> list[Any]:
        """Return the data that enters the key: everything but the name."""
        gears = None if self.gears is None else list(self.gears)
        return [gears, self.min, self.max, self.divisor, self.remainder, self.unique]

    def symbols(self) -> tuple[Symbol, ...]:
        """Return itself."""
        return (self,)

    def value(self, sizes: Mapping[Symbol, int]) -> int:
        """Return its size."""
        return sizes[self]

    def text(self, names: Mapping[Symbol, str] | None = None) -> str:
        """Return its name."""
        return names[self] if names is not None else self.name or "size"


def check_names(sizes: Iterable[tuple[str, Any]]) -> None:
    """Refuse two symbols of one name that differ (`GearSpecError`); `sizes` are pairs of a dim's text and its size."""
    symbol_by_name: dict[str, tuple[Symbol, str]] = {}
    for text, size in sizes:
        for symbol in size.symbols() if isinstance(size, SizeExpression) else ():
            if symbol.name is None:
                continue
            other, where = symbol_by_name.setdefault(symbol.name, (symbol, text))
            if other != symbol:
                raise GearSpecError(
                    f"`{text}` has a symbol `{symbol.name}` ({symbol.facts}), and `{where}` another one of this name "
                    f"({other.facts}); give both the same gears and range, or one of them another name"
                )


def check_size_list(owner: str, sizes: Any, *, minimum: int = 1) -> tuple[int, ...]:
    """Return a list of sizes as a tuple; `GearSpecError` names their owner, the value and what is allowed."""
    if not isinstance(sizes, (list, tuple)):
        raise GearSpecError(f"gears of {owner}: the sizes are {a_type(sizes)}; they must be a list or tuple of int")
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int):
            raise GearSpecError(f"gears of {owner}: {size!r} is {a_type(size)}, not an int")
        if size < 1:
            raise GearSpecError(f"gears of {owner}: {size} is not a size; a gear is at least 1")
    if not minimum <= len(sizes) <= MAX_GEARS:
        raise GearSpecError(f"gears of {owner}: {len(sizes)} sizes were given; allowed: {minimum} to {MAX_GEARS}")
    return tuple(sizes)
