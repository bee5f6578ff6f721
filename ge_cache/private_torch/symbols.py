"""Private names of torch for symbolic sizes: fake inputs that have them, and their expressions. Each has a test."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from gearcache.errors import CaptureError
from gearcache.ge_cache.private_torch.fake import fake_mode
from gearcache.guards.gears.expressions import MATH


class SymbolicInputs:
    """Fake inputs whose sizes are expressions over named symbols; collects a compiler's assumptions about them.

    `numbers` are ints of any value, `hints` sizes: both by name, with the value in the traced call. `ranges` are the
    known ranges of numbers.
    """

    def __init__(
        self,
        hints: Mapping[str, int],
        numbers: Mapping[str, int] | None = None,
        ranges: Mapping[str, Sequence[int | None]] | None = None,
    ) -> None:
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

        self.env = ShapeEnv()
        self.mode = fake_mode(self.env)
        self._names: dict[Any, str] = {}
        self.sizes: dict[str, Any] = {}
        self.numbers: dict[str, Any] = {}
        for name, hint in (numbers or {}).items():
            source = ConstantSource(name)
            symbol = self.env.create_unspecified_symbol(hint, source, DimDynamic.DYNAMIC)
            self._names[symbol] = name
            self._narrow(symbol, *(ranges or {}).get(name, (None, None)))
            self.numbers[name] = self.env.create_symintnode(symbol, hint=hint, source=source)
        self._initial_ranges = dict(self.env.var_to_range)
        for name, hint in hints.items():
            source = ConstantSource(name)
            hint = max(hint, 2)  # a smaller hint would become a constant
            symbol = self.env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
            self._names[symbol] = name
            self.sizes[name] = self.env.create_symintnode(symbol, hint=hint, source=source)

    def tensor(self, sizes: list[Any], strides: list[Any], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return a fake tensor; sizes and strides may be symbolic."""
        with self.mode:
            return torch.empty_strided(sizes, strides, dtype=dtype, device=device)

    def _narrow(self, symbol: Any, least: int | None, greatest: int | None) -> None:
        from torch.utils._sympy.value_ranges import ValueRanges

        bounds = self.env.var_to_range[symbol]
        low, high = bounds.lower if least is None else least, bounds.upper if greatest is None else greatest
        self.env.var_to_range[symbol] = ValueRanges(low, high)

    def _renamed(self) -> dict[Any, Any]:
        return {
            symbol: (number_symbol if name in self.numbers else size_symbol)(name)
            for symbol, name in self._names.items()
        }

    def plain(self, value: Any) -> int | bool | str:
        """Return a symbolic number as an int where it is constant, else as source over the names."""
        expression = self.env.simplify(self.env.replace(value.node.expr))
        if getattr(expression, "is_Integer", False):
            return int(expression)
        if expression in (True, False):
            return bool(expression)
        return print_expression(expression.xreplace(self._renamed()))

    def names_in(self, value: Any) -> set[str]:
        """Return the names that a symbolic number depends on."""
        return {self._names[symbol] for symbol in value.node.expr.free_symbols if symbol in self._names}

    def text_of(self, value: Any) -> tuple[str | None, int | None, int | None]:
        """Return a symbolic int as source over the names (None for a constant), and its least and greatest value."""
        expression = self.env.simplify(self.env.replace(value.node.expr))
        if not expression.free_symbols:
            return None, None, None
        return (print_expression(expression.xreplace(self._renamed())), *bounds_of(self.env, expression))

    def assumptions(self) -> list[str]:
        """Return the guards added since, as Python source over the names."""
        import sympy

        rename = self._renamed()
        numbers = [symbol for symbol, name in self._names.items() if name in self.numbers]
        of_numbers = [item for item in assumed(self.env, numbers) if item.free_symbols <= set(numbers)]
        initial_bounds = [
            condition
            for symbol in numbers
            for condition in (
                symbol >= self._initial_ranges[symbol].lower,
                symbol <= self._initial_ranges[symbol].upper,
            )
        ]
        expressions = [item.xreplace(rename) for item in of_numbers if item not in initial_bounds]
        others = [guard.expr for guard in self.env.guards if not guard.expr.free_symbols <= set(numbers)]
        conditions = [self.env.simplify(self.env.replace(item)) for item in others]
        expressions += [item.xreplace(rename) for item in conditions if getattr(item, "free_symbols", None)]
        for symbol, bounds in self.env.var_to_range.items():
            replaced = self.env.replacements.get(symbol)
            if symbol in numbers and (replaced is None or replaced.free_symbols <= set(numbers)):
                continue
            if (
                symbol in rename and str(rename[symbol])[:1] == "u"
            ):  # a symbol of `mark_unbacked`: code requires at least 2
                expressions.append(rename[symbol] >= bounds.lower)
            if symbol in rename and replaced is not None and replaced != symbol:
                expressions.append(sympy.Eq(rename[symbol], replaced.xreplace(rename), evaluate=False))
            elif symbol in rename and bounds.upper.is_Integer and int(bounds.upper) < 2**62:
                expressions.append(rename[symbol] <= bounds.upper)
        return list(dict.fromkeys(map(_source, expressions)))


def print_expression(expression: Any) -> str:
    """Return an expression over sizes and ints as Python source; `CaptureError` where its floats may be rounded
    otherwise.
    """
    if not is_faithful(expression):
        words = "from sizes or ints, which torch may round otherwise than Python does"
        raise CaptureError("", f"it computes `{_source(expression)}` {words}")
    return _source(expression)


def _source(expression: Any) -> str:
    from torch.utils._sympy.printers import PythonPrinter

    text = str(PythonPrinter().doprint(expression))
    text = text.replace("torch.sym_float(", "float(").replace("torch._sym_", "").replace("math.", "")
    return re.sub(r"\b\d+\.\d{12,}(e[-+]?\d+)?", lambda number: repr(float(number[0])), text)


#: Numbers of this many bits before and behind the point, times a size, are floats without rounding.
_BITS = 6


def is_exact(expression: Any) -> bool:
    """Return whether floats compute an expression without rounding, so that sympy's real numbers are right.

    Then it does not matter in which order the method computes it: `length * 0.5 + 0.5`, and not `length * 0.1`.
    """
    from torch.utils._sympy.functions import FloatTrueDiv, IntTrueDiv

    if expression.is_integer:
        return is_faithful(expression)
    if expression.is_Number:
        scaled = float(expression) * 2**_BITS
        return bool(scaled.is_integer() and abs(scaled) <= 4**_BITS)
    if isinstance(expression, (FloatTrueDiv, IntTrueDiv)):
        number, divisor = expression.args
        return is_exact(number) and divisor.is_number and abs(float(divisor)) in _POWERS_OF_TWO
    return (is_conversion(expression) or expression.is_Add or expression.is_Mul) and all(map(is_exact, expression.args))


_POWERS_OF_TWO = frozenset(2.0**power for power in range(-_BITS, _BITS + 1))


def is_faithful(expression: Any) -> bool:
    """Return whether an expression is computed as Python has computed it, whatever sympy made of it.

    sympy joins the numbers of sums and products, also where floats would round in between.
    """
    import sympy

    if expression.is_Number or expression.is_Symbol:
        return True
    if isinstance(expression, sympy.Expr) and not expression.is_integer and not expression.is_Piecewise:
        return is_exact(expression) or (_is_float_function(expression) and all(map(is_faithful, expression.args)))
    return all(map(is_faithful, expression.args))


def _is_float_function(expression: Any) -> bool:
    """Return whether an expression is an operation of torch's that sympy joins with no other one."""
    from torch.utils._sympy.functions import FloatPow, FloatTrueDiv, IntTrueDiv

    name = type(expression).__name__.removeprefix("OpaqueUnaryFn_")
    return isinstance(expression, (FloatPow, FloatTrueDiv, IntTrueDiv)) or name in MATH or is_conversion(expression)


def number_symbol(name: str) -> Any:
    """Return a symbol for any int."""
    import sympy

    return sympy.Symbol(name, integer=True)


#: Sources of symbols that are values of tensors.
_OF_VALUES = ("CallMethodItemSource", "FloatTensorSource")
#: Sources of symbols that are not ints: sizes and strides of tensors, values, and placeholders for such.
_NO_NUMBERS = ("TensorPropertySource", "EphemeralSource", "ConstantSource", *_OF_VALUES)


def is_number_source(source: Any) -> bool:
    """Return whether Dynamo's source of a symbol belongs to an int, not to a size."""
    return type(source).__name__ not in _NO_NUMBERS


def is_size_source(source: Any) -> bool:
    """Return whether Dynamo's source of a symbol is a size of a tensor."""
    return type(source).__name__ == "TensorPropertySource" and source.prop.name == "SIZE"


def number_sources(shape_env: Any) -> list[tuple[Any, Any]]:
    """Return a trace's symbols of ints and floats, each with Dynamo's source.

    `CaptureError` for one without a value (`TORCH_COMPILE_UNBACKED_SOURCES`), and for the value of a tensor, which no
    call compares.
    """
    pairs = []
    for symbol, sources in shape_env.var_to_sources.items():
        for source in sources[:1]:
            if type(source).__name__ in _OF_VALUES:
                raise CaptureError("", f"torch takes the value of a tensor for a number of the call: {source.name}")
            if not is_number_source(source):
                continue
            if symbol not in shape_env.backed_var_to_val:
                raise CaptureError("", f"`{source.name}` is an int that torch was told to trace without a value")
            pairs.append((symbol, source))
    return pairs


def size_source(shape_env: Any, symbol: Any) -> tuple[Any, int]:
    """Return Dynamo's source of the tensor that has a symbol as its size, and the dim; `CaptureError` for a stride."""
    for source in filter(is_size_source, shape_env.var_to_sources.get(symbol, ())):
        return source.base, source.idx
    raise CaptureError("", f"its trace compares a number with what is no size of a tensor: {symbol}")


def bounds_of(shape_env: Any, expression: Any) -> tuple[int | None, int | None]:
    """Return the least and the greatest value that a trace allows an expression, or a symbol; None where unbounded."""
    bounds = _ranges(shape_env, expression)
    if bounds is None:
        return None, None
    return tuple(int(bound) if bound.is_Integer else None for bound in (bounds.lower, bounds.upper))  # type: ignore[return-value]


def _ranges(shape_env: Any, expression: Any) -> Any:
    """Return the ranges of an expression; None where torch fails: it does for bools in arithmetic, and for powers."""
    from torch.utils._sympy.value_ranges import bound_sympy

    ranges = {symbol: shape_env.var_to_range[symbol] for symbol in expression.free_symbols}
    try:
        return bound_sympy(expression, ranges)
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        NotImplementedError,
        RecursionError,
        TypeError,
        ValueError,
    ):
        return None


def traced_value(shape_env: Any, symbol: Any) -> float:
    """Return the value of a number in the traced call."""
    return (int if symbol.is_integer else float)(shape_env.backed_var_to_val[symbol])


def is_fixed(shape_env: Any, symbol: Any) -> bool:
    """Return whether a trace is right for one value of a symbol only."""
    bounds = shape_env.var_to_range.get(symbol)
    return bool(
        getattr(shape_env.replace(symbol), "is_Number", False) or (bounds is not None and bounds.is_singleton())
    )


def line_that_fixed(shape_env: Any, symbol: Any) -> str:
    """Return the line, with its function, at which a trace needed the value of a symbol; "" if torch does not say."""
    for guard in shape_env.guards:
        if getattr(guard.expr, "is_Equality", False) and guard.expr.free_symbols == {symbol}:
            line, _, place = str(getattr(getattr(guard, "sloc", None), "maybe_user_loc", None) or "").rpartition("  # ")
            number, _, function = place.rpartition(":")[2].partition(" in ")
            return f"{f'`{line.strip()}`' if line.strip() else f'line {number}'} in `{function}`" if function else ""
    return ""


def lines_that_fixed_sizes(shape_env: Any) -> list[tuple[Any, int, str]]:
    """Return each size whose value a trace needed: Dynamo's source of the tensor, the dim, and the line."""
    fixed = [symbol for symbol in shape_env.var_to_sources if is_fixed(shape_env, symbol)]
    lines = {symbol: line_that_fixed(shape_env, symbol) for symbol in fixed}
    return [
        (source.base, source.idx, line)
        for symbol, line in lines.items()
        for source in shape_env.var_to_sources[symbol]
        if line and is_size_source(source)
    ]


def is_replaced(shape_env: Any, symbols: Collection[Any]) -> bool:
    """Return whether a trace found out that some symbols equal a constant, or another symbol."""
    return any(shape_env.replace(symbol) != symbol or is_fixed(shape_env, symbol) for symbol in symbols)


def equals_float(shape_env: Any, symbol: Any) -> bool:
    """Return whether a trace found out that an int equals what it computes from floats."""
    return _has_float(shape_env.replace(symbol))


def take_float_conditions(shape_env: Any) -> list[Any]:
    """Remove the conditions of a trace that name a float, and return them: nothing else knows such symbols."""
    of_floats = [guard for guard in shape_env.guards if _has_float(guard.expr)]
    shape_env.guards[:] = [guard for guard in shape_env.guards if not _has_float(guard.expr)]
    return list(dict.fromkeys(guard.expr for guard in of_floats))


def _has_float(expression: Any) -> bool:
    return any(not symbol.is_integer for symbol in getattr(expression, "free_symbols", ()))


def comparison_text(condition: Any, texts: Mapping[Any, str]) -> str | None:
    """Return comparisons of numbers as Python source; None for what computes with them, as sympy is not exact."""
    import sympy

    if isinstance(condition, (sympy.And, sympy.Or)):
        parts = [comparison_text(part, texts) for part in condition.args]
        word = " and " if isinstance(condition, sympy.And) else " or "
        return f"({word.join(map(str, parts))})" if None not in parts else None
    if not isinstance(condition, sympy.core.relational.Relational):
        return None
    sides = [_side_text(side, texts) for side in condition.args]
    if any(side.is_Float and abs(side) >= 2**53 for side in condition.args):
        return None  # it may have been an int, which Python compares as it is
    return f"({sides[0]} {condition.rel_op} {sides[1]})" if None not in sides else None


def operation_text(expression: Any, texts: Mapping[Any, str]) -> str | None:
    """Return one operation on floats as Python source, exact to the last bit; None for any that may not be."""
    from torch.utils._sympy.functions import FloatPow, FloatTrueDiv, IntTrueDiv

    if expression.is_Symbol:
        return texts.get(expression)  # but for the sign of a zero, which decides no comparison
    signs = {FloatPow: "**", FloatTrueDiv: "/", IntTrueDiv: "/"}
    sides = [_side_text(side, texts) for side in expression.args]
    if None in sides:
        return None
    if is_conversion(expression):
        return f"float({sides[0]})"
    if expression.is_Pow:
        return f"({sides[0]} * {sides[0]})" if expression.exp == 2 else None
    if len(sides) == 2:
        sign = "+" if expression.is_Add else "*" if expression.is_Mul else signs.get(type(expression))
        return f"({sides[0]} {sign} {sides[1]})" if sign else None
    name = type(expression).__name__.removeprefix("OpaqueUnaryFn_")
    return f"{name}({sides[0]})" if name in MATH and len(sides) == 1 else None


def size_texts(
    shape_env: Any,
    operations: Mapping[Any, Any] = MappingProxyType({}),
    known: Mapping[Any, str] = MappingProxyType({}),
) -> dict[Any, str]:
    """Return the sizes of a trace, and the floats that it computed from them in `operations`, as Python source.

    Of a float that is not `known`, the operation may be one that sympy has joined with another one (`3 * size * 0.1` is
    `0.3 * size` for it): then it is left out.
    """
    texts = {
        symbol: print_expression(shape_env.replace(symbol))
        for symbol, sources in shape_env.var_to_sources.items()
        if sources and symbol.is_integer and not is_number_source(sources[0])
    }
    for symbol, operation in operations.items():
        factors = operation.args if operation.is_Mul or operation.is_Add else ()
        is_joined = any(each.is_integer for each in factors) and not all(map(is_exact, factors))
        text = known.get(symbol) or (None if is_joined else operation_text(operation, texts))
        if text is not None:
            texts[symbol] = text
    return texts


def computes_floats(expression: Any) -> bool:
    """Return whether a size is computed with floats."""
    import sympy

    parts = sympy.preorder_traversal(expression)
    return any(isinstance(part, sympy.Expr) and not part.is_integer and not part.is_Piecewise for part in parts)


def is_conversion(expression: Any) -> bool:
    """Return whether an operation makes an int a float of its value."""
    return type(expression).__name__ == "ToFloat"


def _side_text(side: Any, texts: Mapping[Any, str]) -> str | None:
    if side.is_Symbol:
        return texts.get(side)
    if side.is_Integer or side.is_Float:
        return f"({(int if side.is_Integer else float)(side)!r})"
    if side.is_Boolean and side.is_Atom:
        return str(side)  # Python's own word for it
    if (-side).is_Symbol and -side in texts:
        return f"(-{texts[-side]})"
    if is_conversion(side):
        return operation_text(side, texts)
    if side.is_integer and texts.keys() >= side.free_symbols:
        return f"({print_expression(side.xreplace({each: _named(each, texts[each]) for each in side.free_symbols}))})"
    return None


def _named(symbol: Any, text: str) -> Any:
    import sympy

    return number_symbol(text) if symbol.is_integer else sympy.Symbol(text, real=True)


def assumed(shape_env: Any, symbols: Collection[Any]) -> list[Any]:
    """Return all assumptions of a trace about some symbols: conditions on them, ranges included, without duplicates.

    `CaptureError` when the trace left an assumption to be checked by the graph.
    """
    symbol_set = set(symbols)
    deferred = [item for group in shape_env.deferred_runtime_asserts.values() for item in group]
    if any(symbol_set & item.expr.free_symbols for item in deferred):
        raise CaptureError("", "its graph is to check what it assumes about a number")
    range_conditions = []
    for symbol in symbols:
        bounds = shape_env.var_to_range[symbol]
        range_conditions += [symbol >= bounds.lower] if bounds.lower.is_Integer else []
        range_conditions += [symbol <= bounds.upper] if bounds.upper.is_Integer else []
    follows = set(implied(shape_env, symbols))
    guards = [guard.expr for guard in shape_env.guards if symbol_set & getattr(guard.expr, "free_symbols", set())]
    return list(dict.fromkeys([*range_conditions, *(item for item in guards if item not in follows)]))


def implied(shape_env: Any, symbols: Collection[Any]) -> list[Any]:
    """Return the guards on some symbols alone that follow from their ranges."""
    symbol_set, expressions = set(symbols), []
    for guard in shape_env.guards:
        free: set[Any] = getattr(guard.expr, "free_symbols", set())
        if free and free <= symbol_set:
            truth = _ranges(shape_env, guard.expr)
            if truth is not None and truth.is_singleton() and bool(truth.lower):
                expressions.append(guard.expr)
    return expressions


def size_symbol(name: str) -> Any:
    """Return a symbol for a size."""
    import sympy

    return sympy.Symbol(name, integer=True, positive=True)


def depends_on_values(value: Any) -> bool:
    """Return whether a number, or one of some sizes, is known only once tensors have values."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    is_symbolic = isinstance(value, (tuple, torch.SymInt, torch.SymFloat, torch.SymBool))
    return is_symbolic and bool(free_unbacked_symbols(value))
