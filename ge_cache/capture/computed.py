"""Floats that a method computes from its numbers: `1 - step / steps`, `length ** 0.8`.

Dynamo records each operation, and so does this module, as text: at each call, Python computes the same operations in
the same order, and passes the result to the graph. A graph never computes with a float's symbol, which sympy would
simplify.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping
from typing import Any

import torch
from msgspec import Struct
from torch import fx

from gearcache.guards.gears.expressions import MATH

#: A longer text repeats a part many times.
LONGEST = 1000
_BINARY: dict[Any, str] = {
    operator.add: "({} + {})",
    operator.sub: "({} - {})",
    operator.mul: "({} * {})",
    operator.truediv: "({} / {})",
    operator.pow: "({} ** {})",
    pow: "({} ** {})",
    operator.iadd: "({} + {})",
    operator.isub: "({} - {})",
    operator.imul: "({} * {})",
    operator.itruediv: "({} / {})",
    operator.ipow: "({} ** {})",
}
_UNARY: dict[Any, str] = {
    operator.neg: "(-{})",
    abs: "abs({})",
    operator.abs: "abs({})",
    float: "float({})",
    torch.sym_float: "float({})",
}
#: Python returns one of two values as it is, of its own type.
_CHOICES: dict[Any, str] = {torch.sym_max: "max({}, {})", torch.sym_min: "min({}, {})"}
_INTEGERS: dict[Any, str] = {operator.floordiv: "({} // {})", operator.mod: "({} % {})"}


class ComputedFloats:
    """The symbols of the floats that a trace computed."""

    def __init__(self) -> None:
        self.begin(None)

    def begin(self, shape_env: Any) -> None:
        """Forget all: Dynamo may begin a trace anew, with other symbols."""
        self.shape_env = shape_env
        #: Symbol of a number or a computed float -> the `SymNode` that stands for it.
        self.nodes: dict[Any, Any] = {}
        #: Symbol -> the numbers that it was computed from.
        self.bases: dict[Any, frozenset[Any]] = {}
        #: Symbol -> the operation that made it, as sympy's expression over symbols of numbers and of earlier floats.
        self.operations: dict[Any, Any] = {}
        #: The same of floats that were computed from sizes, and rounded: sympy must not compute with those either.
        self.of_sizes: dict[Any, Any] = {}
        #: Those of which it made ints.
        self.rounded: set[Any] = set()


class ComputedFloat(Struct):
    """A float that the graph takes, computed at each call from the numbers of the call."""

    name: str
    #: Python source over the names of numbers.
    text: str
    #: The symbols of these numbers.
    bases: frozenset[Any]
    #: Stands for it in the captured graph.
    node: fx.Node


def passed_float(text: str) -> float:
    """Stand for a computed float in a captured graph."""
    raise NotImplementedError(text)


def number_names(text: str) -> set[str]:
    """Return the names of numbers in a text; none where all that it was computed from are constants."""
    return set(re.findall(r"\b[nf]\d+\b", text))


def number_texts(graph: fx.Graph, named: Mapping[fx.Node, str]) -> dict[fx.Node, str]:
    """Return how Python computes each number of a graph, as source over the names of those that the frame knows."""
    texts = dict(named)
    for node in graph.nodes:
        if isinstance(_value(node), (torch.SymInt, torch.SymFloat)) and node.op == "call_function":
            text = _operation_text(node, texts)
            if text is not None and len(text) <= LONGEST:
                texts[node] = text
    return texts


def _operation_text(node: fx.Node, texts: Mapping[fx.Node, str]) -> str | None:
    operands = [_operand_text(argument, texts) for argument in node.args]
    if node.kwargs or None in operands:
        return None
    are_floats = [isinstance(_value(argument), (float, torch.SymFloat)) for argument in node.args]
    target: Any = node.target
    name = getattr(target, "__name__", "").removeprefix("_sym_")
    if len(operands) == 1 and target is getattr(torch, f"_sym_{name}", None) and name in MATH:
        return f"{name}({operands[0]})"
    if len(operands) == 1 and target in _UNARY:
        return _UNARY[target].format(*operands)
    if len(operands) != 2:
        return None
    if target in _BINARY:
        return _BINARY[target].format(*operands)
    if target in _CHOICES and len(set(are_floats)) == 1:
        return _CHOICES[target].format(*operands)
    return _INTEGERS[target].format(*operands) if target in _INTEGERS and not any(are_floats) else None


def _operand_text(operand: Any, texts: Mapping[fx.Node, str]) -> str | None:
    if isinstance(operand, fx.Node):
        return texts.get(operand)
    is_plain = type(operand) is int or (type(operand) is float and math.isfinite(operand))
    return f"({operand!r})" if is_plain else None


def _value(argument: Any) -> Any:
    return argument.meta.get("example_value") if isinstance(argument, fx.Node) else argument
