"""The numbers of a capture as inputs of a graph: symbols while it is recorded, and conditions of its calls.

A static graph is recorded at the sizes of one gear, so what the trace assumed about numbers and sizes at once becomes a
condition on the numbers alone (`n <= x.size(0)` is `n <= 8` where that dim is 8).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from gearcache.ge_cache.capture.captured import Capture
from gearcache.ge_cache.capture.number_checks import number_text
from gearcache.ge_cache.capture.numbers import NumberRefused
from gearcache.ge_cache.capture.symbols import Symbols
from gearcache.ge_cache.graphs.arguments import given_arguments
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import symbols as private_symbols
from gearcache.guards.gears.expressions import expression_function

#: Name, value in the traced call, and the least and the greatest value that the trace allows (None: any).
NumberRow = list[Any]
_LEAST, _GREATEST = -(2**63), 2**63 - 1
_NARROW_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.uint8, torch.uint16, torch.uint32, torch.bool)


def number_rows(capture: Capture) -> list[NumberRow]:
    """Return the numbers that the graph of a capture takes, in order."""
    env = capture.shape_env
    return [
        [capture.numbers.names[symbol], int(env.backed_var_to_val[symbol]), *private_symbols.range_of(env, symbol)]
        for symbol in capture.numbers.passed
    ]


class GearNumbers:
    """The numbers of a capture at the sizes of one gear."""

    def __init__(self, capture: Capture, symbols: Symbols, assignment: Mapping[Any, int]) -> None:
        names = capture.numbers.names
        self._named = {name: symbol for symbol, name in names.items()}
        sized = {
            symbol
            for item in capture.inputs
            for number in (*item.sizes, *item.strides)
            for symbol in symbols.symbols_of(number)
        }
        known = {
            symbol: symbols.value(symbol, assignment)
            for symbol in capture.numbers.symbols
            if symbols.symbols_of(symbol) <= sized
        }
        free = [s for s in capture.numbers.symbols if s not in known and symbols.symbols_of(s) == {s}]
        env = capture.shape_env
        fixed = {symbol: symbols.value(symbol, assignment) for symbol in sized}
        #: Conditions of the trace that name sizes, at the sizes of the gear.
        self._mixed = [
            number_text(condition.xreplace(_known_sizes(condition, symbols, assignment, names, fixed)), names)
            for condition in mixed_conditions(capture)
        ]
        hints = _hints({names[symbol]: symbols.hint(symbol) for symbol in capture.numbers.symbols}, self._mixed)
        self._symbolic = private_symbols.SymbolicInputs(
            {},
            {names[symbol]: hints[names[symbol]] for symbol in free},
            {names[symbol]: private_symbols.range_of(env, symbol) for symbol in free},
        )
        #: The mode of fakes in which the graph is to be recorded.
        self.mode = self._symbolic.mode
        self.values = [
            known[symbol] if symbol in known else self._value(symbols.simplify(symbol), names)
            for symbol in capture.numbers.passed
        ]

    def _value(self, expression: Any, names: Mapping[Any, str]) -> Any:
        """Return a number as an int that is symbolic in the free ones."""
        numbers = self._symbolic.numbers
        text = number_text(expression, names)
        return expression_function(text, tuple(numbers))(**numbers, max=torch.sym_max, min=torch.sym_min)

    def symbols_in(self, value: Any) -> set[Any]:
        """Return the symbols of the capture of which a symbolic number of the graph is made."""
        return {self._named[name] for name in self._symbolic.names_in(value)}

    def plain(self, value: Any) -> Any:
        """Return an int, or an expression over the names of the numbers."""
        if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
            found = self._symbolic.plain(value)
            return found if not isinstance(found, str) else {"expression": found}
        return int(value) if isinstance(value, int) and not isinstance(value, bool) else value

    def conditions(self, graph: fx.Graph) -> list[str]:
        """Return what must hold of the numbers for a recorded graph, beside the call checks."""
        own = [f"({text})" for text in self._symbolic.assumptions()]
        return list(dict.fromkeys([*self._mixed, *own, *value_conditions(graph, self._symbolic.text_of)]))


def _hints(hints: Mapping[str, int], conditions: list[str]) -> dict[str, int]:
    """Return values of the numbers like those of the traced call, for which the conditions hold where there are some."""

    def hold(values: Mapping[str, int]) -> bool:
        return all(expression_function(text, tuple(values))(**values) for text in conditions)

    found = dict(hints)
    for name in hints:
        if hold(found):
            break
        wanted = (value for value in (*range(2, 130), 1, 0) if hold(found | {name: value}))
        found[name] = next(wanted, found[name])
    return found


def _known_sizes(
    condition: Any, symbols: Symbols, assignment: Mapping[Any, int], names: Mapping[Any, str], fixed: Mapping[Any, int]
) -> dict[Any, Any]:
    import sympy

    return {
        symbol: sympy.Integer(fixed[symbol] if symbol in fixed else symbols.value(symbol, assignment))
        for symbol in condition.free_symbols
        if symbol not in names
    }


def mixed_conditions(capture: Capture) -> list[Any]:
    """Return the conditions of a trace on numbers that are no call checks, as those that name sizes."""
    numbers = set(capture.numbers.symbols)
    return [
        guard.expr
        for guard in capture.shape_env.guards
        if numbers & getattr(guard.expr, "free_symbols", set()) and guard.expr not in capture.numbers.checked
    ]


def value_conditions(graph: fx.Graph, text_of: Any) -> list[str]:
    """Return conditions under which compiled code computes the numbers of a recorded graph as Python does: in 64 bits.

    Also those under which integer tensors of fewer bits can hold what they are combined with.
    """
    found = []
    for node in graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.SymInt):
            continue
        text, low, high = text_of(value)
        if text is None:
            continue
        if node.op == "call_function" and (low is None or low < _LEAST or high is None or high > _GREATEST):
            found.append(f"({_LEAST} <= {text} <= {_GREATEST})")
        for user in node.users:
            for dtype in _operand_dtypes(node, user):
                if dtype in _NARROW_INTEGERS and dtype is not torch.bool:
                    limits = torch.iinfo(dtype)
                    if low is None or low < limits.min or high is None or high > limits.max:
                        found.append(f"({limits.min} <= {text} <= {limits.max})")
    return found


def _operand_dtypes(number: fx.Node, user: fx.Node) -> list[torch.dtype]:
    """Return the dtypes of the tensors with which an operator combines a number."""
    if not isinstance(user.target, private_core.OpOverload):
        return []
    kinds = {item.name: str(item.type) for item in user.target._schema.arguments}
    taken = [name for name, value in given_arguments(user).items() if value is number]
    if not any(kinds[name] in ("number", "Optional[number]", "Tensor") for name in taken):
        return []
    values = [user.meta.get("val"), *(item.meta.get("val") for item in user.all_input_nodes)]
    return [value.dtype for value in values if isinstance(value, torch.Tensor)]


def check_operands(graph: fx.Graph, method: str, symbols_in: Any, *, compiles: bool) -> None:
    """Raise `NumberRefused` where an operator takes a number otherwise than eager mode would.

    `symbols_in` gives the symbols of the capture in a symbolic number of the graph.
    """
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, (torch.SymFloat, torch.SymBool)) and any(_is_operator(user) for user in node.users):
            raise NumberRefused(method, f"`{node.target}` makes a float or a bool of a number", symbols_in(value))
        if not isinstance(value, torch.SymInt) or not compiles:
            continue
        for user in node.users:
            if any(dtype.is_floating_point and dtype.itemsize < 4 for dtype in _operand_dtypes(node, user)):
                # Inductor rounds the number to the tensor's type first; eager, and a number in the code, are exact.
                raise NumberRefused(method, f"`{user.target}` computes with a number in 16 bits", symbols_in(value))


def _is_operator(node: fx.Node) -> bool:
    return isinstance(node.target, private_core.OpOverload) and node.target._schema.name != "aten::_assert_scalar"
