"""Find what stays symbolic in the graph of a gear (numbers, and open dims), and the conditions of its calls.

A static graph is recorded at the sizes of one gear. So a condition of the trace on both numbers and sizes becomes a
condition on the numbers alone (`n <= x.size(0)` is `n <= 8` where that dim is 8).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import fx

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.captured import Capture, CapturedInput
from gearcache.ge_cache.capture.number_checks import number_text
from gearcache.ge_cache.capture.number_choice import NumberRefused
from gearcache.ge_cache.capture.symbols import Symbols
from gearcache.ge_cache.graphs.arguments import given_arguments
from gearcache.ge_cache.graphs.tensor_operands import takes_int, takes_tensor
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import symbols as private_symbols
from gearcache.guards.gears.expressions import checked_expression, expression_function

#: Name, value in the traced call, and the least and the greatest value that the trace allows (None: any).
NumberRow = list[Any]
_LEAST, _GREATEST = -(2**63), 2**63 - 1
_NARROW_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.uint8, torch.uint16, torch.uint32, torch.bool)


def number_rows(capture: Capture) -> list[NumberRow]:
    """Return the numbers that the graph of a capture takes, in order."""
    env, rows = capture.shape_env, []
    for symbol in capture.numbers.passed:
        limits = [
            None if limit is None or not _LEAST <= limit <= _GREATEST else limit
            for limit in private_symbols.bounds_of(env, symbol)
        ]
        rows.append([capture.numbers.names[symbol], int(env.backed_var_to_val[symbol]), *limits])
    return rows


class GearSymbols:
    """The symbolic values in the graph of one gear: numbers, and the sizes of open dims.

    All other sizes have their values at the gear.
    """

    def __init__(self, capture: Capture, symbols: Symbols, assignment: Mapping[Any, int]) -> None:
        self.open = capture.open_symbols(symbols, assignment)
        if self.open and capture.numbers.size_conditions:
            cause = "it decides on a float that it computes from a size, which has no gears"
            raise CaptureError(capture.method, cause)
        self._symbols, self._assignment = symbols, assignment
        names = capture.numbers.names
        self._symbol_by_name = {name: symbol for symbol, name in names.items()}
        sizes = [number for item in capture.inputs for number in (*item.sizes, *item.strides)]
        sized = {symbol for number in sizes for symbol in symbols.symbols_of(number)}
        fixed = [s for s in capture.numbers.symbols if symbols.symbols_of(s) <= sized - self.open]
        free = [s for s in capture.numbers.symbols if s not in sized and symbols.symbols_of(s) == {s}]
        self._free_symbols = {*self.open, *free}
        env = capture.shape_env
        #: Conditions of the trace on numbers and sizes together, at the sizes of the gear.
        mixed = [number_text(self._at_gear(condition, names), names) for condition in mixed_conditions(capture)]
        traced = {names[s]: symbols.hint(s) for s in names}
        values = traced | {names[s]: symbols.value(s, assignment) for s in fixed}
        checked = [item for item in capture.numbers.checked if item.free_symbols - set(capture.numbers.symbols)]
        related = [number_text(self._at_gear(condition, names), names) for condition in checked]
        #: Whether the traced numbers also satisfy the trace's conditions at this gear, which may not be the traced
        #: call's; and whether any numbers do.
        self.takes_call = values == traced and _holds(values, [*mixed, *related])
        hints = _hints(values, [names[symbol] for symbol in free], mixed)
        self.is_possible = _holds(hints, mixed)
        self._mixed = mixed
        self._symbolic = private_symbols.SymbolicInputs(
            {str(symbol): symbols.hint(symbol) for symbol in sorted(self.open, key=str)},
            {names[symbol]: hints[names[symbol]] for symbol in free},
            {names[symbol]: private_symbols.bounds_of(env, symbol) for symbol in free},
        )
        #: The fake mode in which the graph must be recorded.
        self.mode = self._symbolic.mode
        #: The numbers that the graph takes, symbolic or as ints.
        self.values = [
            symbols.value(symbol, assignment) if symbol in fixed else self._value(symbols.simplify(symbol), names)
            for symbol in capture.numbers.passed
        ]

    def simple(self, size: Any) -> Any:
        """Return a size of the trace as an int, or as an expression over the values that stay symbolic at the gear."""
        expression = self._symbols.simplify(size)
        if isinstance(expression, int):
            return expression
        expression = expression.xreplace(self._fixed(expression.free_symbols))
        return int(expression) if expression.is_Integer else expression

    def _fixed(self, free: Iterable[Any]) -> dict[Any, Any]:
        import sympy

        return {s: sympy.Integer(self._symbols.value(s, self._assignment)) for s in free if s not in self._free_symbols}

    def _at_gear(self, condition: Any, names: Mapping[Any, str]) -> Any:
        import sympy

        return condition.xreplace({s: sympy.sympify(self.simple(s)) for s in condition.free_symbols if s not in names})

    def tensor(self, item: CapturedInput) -> torch.Tensor:
        """Return a fake tensor for an input."""
        sizes, strides = (
            [self._value(size, {}) for size in map(self.simple, measures)] for measures in (item.sizes, item.strides)
        )
        return self._symbolic.tensor(sizes, strides, item.dtype, item.device)

    def _value(self, expression: Any, names: Mapping[Any, str]) -> Any:
        """Return the value of an expression: an int, or symbolic."""
        if isinstance(expression, int):
            return expression
        values = {**self._symbolic.sizes, **self._symbolic.numbers}
        text = number_text(expression, names)
        return expression_function(text, tuple(values))(**values, max=torch.sym_max, min=torch.sym_min)

    def symbols_in(self, value: Any) -> set[Any]:
        """Return the captured numbers that a symbolic number of the graph depends on."""
        return {self._symbol_by_name[name] for name in self._symbolic.names_in(value) if name in self._symbol_by_name}

    def plain(self, value: Any) -> Any:
        """Return an int, or an expression over the names of sizes and numbers."""
        if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
            size = self._symbolic.plain(value)
            return {"expression": _simple(size, self.symbols_in(value))} if isinstance(size, str) else size
        return int(value) if isinstance(value, int) and not isinstance(value, bool) else value

    def conditions(self, graph: fx.Graph) -> list[str]:
        """Return the conditions on sizes and numbers of a recorded graph, besides the call checks."""
        assumptions = [f"({text})" for text in self._symbolic.assumptions()]
        mixed = [text for text in self._mixed if text not in ("(True)", "True")]
        return list(
            dict.fromkeys([*mixed, *assumptions, *value_conditions(graph, self._symbolic.text_of, self.symbols_in)])
        )


def _hints(values: Mapping[str, int], free: Iterable[str], conditions: list[str]) -> dict[str, int]:
    """Return values of all numbers like those of the traced call, with free ones that meet the conditions, if possible.

    A slice that fits the call's own size may be too long for a smaller gear's.
    """
    hints = dict(values)
    for name in free:
        if _holds(hints, conditions):
            break
        fitting = (value for value in (*range(2, 130), 1, 0) if _holds(hints | {name: value}, conditions))
        hints[name] = next(fitting, hints[name])
    return hints


def _holds(values: Mapping[str, int], conditions: list[str]) -> bool:
    """Return whether the conditions on numbers alone hold; those that name open sizes are skipped."""
    alone = [text for text in conditions if not re.search(r"\b[su]\d+\b", text)]
    try:
        return all(expression_function(text, tuple(values))(**values) for text in alone)
    except ZeroDivisionError:
        return False


def mixed_conditions(capture: Capture) -> list[Any]:
    """Return the conditions of a trace on numbers that are not call checks, such as those that name sizes."""
    numbers = set(capture.numbers.symbols)
    return [
        guard.expr
        for guard in capture.shape_env.guards
        if numbers & getattr(guard.expr, "free_symbols", set()) and guard.expr not in capture.numbers.checked
    ]


def _simple(text: str, symbols: Iterable[Any]) -> str:
    try:
        return checked_expression(text)
    except ValueError:
        raise NumberRefused("", f"it computes `{text}` of a number", symbols) from None


def value_conditions(graph: fx.Graph, text_of: Any, symbols_in: Any) -> list[str]:
    """Return conditions under which compiled code computes a graph's numbers as Python does, although in 64 bits.

    They also ensure that narrower integer tensors can hold the numbers that they are combined with. `NumberRefused` for
    an expression that is not simple arithmetic, or that also depends on a value of a tensor, which no call check knows.
    """
    conditions = []
    of_inputs = _symbols_of_inputs(graph)
    for node in graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.SymInt):
            continue
        if not value.node.expr.free_symbols <= of_inputs:  # `.item()`
            if symbols := symbols_in(value):
                raise NumberRefused("", "it combines the number with a value of a tensor", symbols)
            continue
        text, low, high = text_of(value)
        if text is None:
            continue
        _simple(text, symbols_in(value))
        if node.op == "call_function" and (low is None or low < _LEAST or high is None or high > _GREATEST):
            conditions.append(f"({_LEAST} <= {text} <= {_GREATEST})")
        for user in node.users:
            for dtype in _operand_dtypes(node, user):
                if dtype in _NARROW_INTEGERS and dtype is not torch.bool:
                    limits = torch.iinfo(dtype)
                    if low is None or low < limits.min or high is None or high > limits.max:
                        conditions.append(f"({limits.min} <= {text} <= {limits.max})")
    return conditions


def _symbols_of_inputs(graph: fx.Graph) -> set[Any]:
    """Return the symbols in the numbers, sizes and strides of a graph's inputs."""
    symbols: set[Any] = set()
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        numbers = [*value.shape, *value.stride()] if isinstance(value, torch.Tensor) else [value]
        symbols.update(*(each.node.expr.free_symbols for each in numbers if isinstance(each, torch.SymInt)))
    return symbols


def _operand_dtypes(number: fx.Node, user: fx.Node) -> list[torch.dtype]:
    """Return the dtypes of the tensors with which an operator combines a number."""
    if not isinstance(user.target, private_core.OpOverload):
        return []
    kinds = {item.name: str(item.type) for item in user.target._schema.arguments}
    names = [name for name, value in given_arguments(user).items() if value is number]
    if not any(kinds[name] in ("number", "Optional[number]", "Tensor") for name in names):
        return []
    values = [user.meta.get("val"), *(item.meta.get("val") for item in user.all_input_nodes)]
    return [value.dtype for value in values if isinstance(value, torch.Tensor)]


def check_operands(graph: fx.Graph, method: str, symbols_in: Any, *, compiles: bool, is_ge: bool) -> None:
    """Raise `NumberRefused` where an operator treats a number differently from eager mode.

    `symbols_in` gives the symbols of the capture in a symbolic number of the graph.
    """
    for node in graph.nodes:
        value = node.meta.get("val")
        is_other = isinstance(value, (torch.SymFloat, torch.SymBool)) and any(_is_operator(user) for user in node.users)
        if is_other and (symbols := symbols_in(value)):
            raise NumberRefused(method, f"`{node.target}` makes a float or a bool of a number", symbols)
        if not isinstance(value, torch.SymInt) or not compiles:
            continue
        for user in node.users:
            is_narrow = any(dtype.is_floating_point and dtype.itemsize < 4 for dtype in _operand_dtypes(node, user))
            if is_narrow and (is_ge or not takes_int(user, node)):
                # Inductor rounds the number to the tensor's type first; eager, and a number in the code, are exact.
                raise NumberRefused(method, f"`{user.target}` computes with a number in 16 bits", symbols_in(value))


def _is_operator(node: fx.Node) -> bool:
    return isinstance(node.target, private_core.OpOverload) and node.target._schema.name != "aten::_assert_scalar"


#: Further operators that compiled code computes with a float as eager mode does, with tensors of 32 bits.
_TAKES_FLOATS = frozenset({"where", "masked_fill", "clamp", "clamp_min", "clamp_max", "full", "full_like", "fill"})


def check_floats(graph: fx.Graph, ints: int, capture: Capture) -> None:
    """Raise `NumberRefused` where compiled code may treat a float of a recorded graph differently from eager mode.

    Some operators have a kernel of their own for some values (`x ** 2.0`); the rest were not compared. Inductor has
    other types for integer tensors.
    """
    floats = capture.numbers.graph_floats
    placeholders = graph.find_nodes(op="placeholder")
    given = placeholders[len(placeholders) - ints - len(floats) :][: len(floats)]
    for placeholder, bases in zip(given, floats.values(), strict=True):
        for read, user in [(node, user) for node in placeholder.users for user in node.users if _is_operator(user)]:
            tensors = [user.meta.get("val"), *(node.meta.get("val") for node in user.all_input_nodes)]
            dtypes = {tensor.dtype for tensor in tensors if isinstance(tensor, torch.Tensor)}
            is_exact = takes_tensor(user, read)
            if not is_exact and user.target._schema.name.removeprefix("aten::") not in _TAKES_FLOATS:
                operands = [str(value.dtype) for value in tensors[1:] if isinstance(value, torch.Tensor)]
                beside = f" beside {operands[0].removeprefix('torch.')}" if operands else ""
                raise NumberRefused(capture.method, f"`{user.target}` takes a float{beside}", bases)
            if not all(
                dtype in (torch.float32, torch.bool) or (is_exact and dtype.is_floating_point) for dtype in dtypes
            ):
                names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
                raise NumberRefused(capture.method, f"`{user.target}` combines a float with {names}", bases)
