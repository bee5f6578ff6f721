"""The symbols of a capture: the value of each size at a gear, and whether the trace is valid there."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gearcache.guards.gears.expressions import holds

Assignment = Mapping[Any, int]


class Symbols:
    """Read-only view of a capture's shape environment; `unbacked` has the sizes of symbols that lack a value in it."""

    def __init__(
        self,
        shape_env: Any,
        unbacked: Assignment | None = None,
        numbers: Collection[Any] = frozenset(),
        size_conditions: Sequence[tuple[Any, str | None]] = (),
    ) -> None:
        """`size_conditions`: see `ge_cache.capture.numbers.Numbers`."""
        import sympy

        self._sympy = sympy
        self._shape_env = shape_env
        self._unbacked = unbacked or {}
        self._numbers = set(numbers)
        self._size_conditions = size_conditions

    def simplify(self, size: Any) -> Any:
        """Return an int or an expression in independent symbols (equal dims share one)."""
        if isinstance(size, int):
            return size
        expression = self._sympy.sympify(self._shape_env.replace(size))
        return int(expression) if getattr(expression, "is_Integer", False) else expression

    def symbols_of(self, size: Any) -> set[Any]:
        """Return the independent symbols of a size."""
        simple = self.simplify(size)
        return set() if isinstance(simple, int) else set(simple.free_symbols)

    def hint(self, symbol: Any) -> int:
        """Return the symbol's value in the traced call."""
        if symbol in self._unbacked:
            return self._unbacked[symbol]
        return int(self._shape_env.backed_var_to_val[symbol])

    def value(self, size: Any, assignment: Assignment) -> int:
        """Return a size at a gear; symbols that no gear assigns keep their traced value."""
        simple = self.simplify(size)
        if isinstance(simple, int):
            return simple
        values = {symbol: assignment.get(symbol, self.hint(symbol)) for symbol in simple.free_symbols}
        return int(simple.xreplace({symbol: self._sympy.Integer(value) for symbol, value in values.items()}))

    def broken(self, assignment: Assignment) -> str | None:
        """Return the first condition of the trace that does not hold at a gear, as text.

        Sizes 0 and 1 never fit a trace with symbolic dims: Dynamo assumes that every symbol is at least 2 without
        recording a guard. Conditions on numbers are checked at each call.
        """
        for symbol, value in assignment.items():
            if symbol in self._numbers:
                continue
            if value < 2:
                return f"{symbol} >= 2"
            bounds = self._shape_env.var_to_range.get(symbol)
            if bounds is not None and value not in bounds:
                return f"{bounds.lower} <= {symbol} <= {bounds.upper}"
        for guard in self._shape_env.guards:
            condition = self._sympy.sympify(self._shape_env.replace(guard.expr))
            free: set[Any] = getattr(condition, "free_symbols", set())
            if self._numbers.intersection(getattr(guard.expr, "free_symbols", set())):
                continue
            values = {symbol: self._sympy.Integer(assignment.get(symbol, self.hint(symbol))) for symbol in free}
            if condition.xreplace(values) == self._sympy.false:
                return str(guard.expr)
        return self._broken_size_condition(assignment)

    def _broken_size_condition(self, assignment: Assignment) -> str | None:
        """Return the first condition on floats computed from sizes that does not hold at a gear, or is not known to."""
        if all(value == self.hint(symbol) for symbol, value in assignment.items()):
            return None
        by_name = {str(symbol): symbol for symbol in self._shape_env.var_to_range}
        for condition, text in self._size_conditions:
            names = sorted(by_name.keys() & set(re.findall(r"\w+", text or "")))
            values = {name: self.value(by_name[name], assignment) for name in names}
            if text is None or not holds(text, values):
                return text or str(condition)
        return None
