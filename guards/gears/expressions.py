"""Arithmetic over sizes and numbers, stored as text and admitted only from a short grammar."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

from gearcache.guards.dispatch.generated import define

_NODES = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Pow,
    ast.USub,
    ast.And,
    ast.Or,
    ast.Not,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.IfExp,
)
#: Functions of `math` that may compute a float from numbers.
MATH = {name: getattr(math, name) for name in ("sqrt", "sin", "cos", "tan", "tanh", "log2")}
#: Functions that make an int of a float. Python's `int` is `trunc`.
ROUNDING: dict[str, Callable[..., Any]] = {"trunc": math.trunc, "ceil": math.ceil, "floor": math.floor, "round": round}
#: What a function that computes expressions has in its namespace.
NAMESPACE = {**MATH, **ROUNDING}
_FUNCTIONS = {"abs", "float", "max", "min", *NAMESPACE}


#: What an expression raises that has no value: a division by 0, a number that is too large, a root of -1.
NO_VALUE = (ArithmeticError, ValueError)
#: The condition that a float is finite, which sympy supposes of each.
FINITE = "(abs({}) < 1e309)"


@functools.lru_cache(maxsize=1024)
def checked_expression(text: str) -> str:
    """Return `text` when it is arithmetic over names like `s1`, `u1`, `n1` and `f1`; `ValueError` for anything else."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise ValueError(f"{text!r} is not an expression over sizes") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            allowed = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords
        elif isinstance(node, ast.Name):
            allowed = node.id in _FUNCTIONS or (node.id[:1] in ("s", "u", "n", "f") and node.id[1:].isdigit())
        elif isinstance(node, ast.Constant):
            allowed = isinstance(node.value, (int, bool, float))
        else:
            allowed = isinstance(node, _NODES)
        if not allowed:
            raise ValueError(f"{text!r} is not an expression over sizes")
    return text


@functools.lru_cache(maxsize=1024)
def expression_function(text: str, names: tuple[str, ...]) -> Callable[..., Any]:
    """Return an expression as a function of the named symbols (numbers, or symbolic ints with torch's max and min)."""
    parameters = ", ".join(checked_expression(name) for name in names)
    source = f"def value({parameters}{', ' if names else ''}max=max, min=min):\n    return {checked_expression(text)}\n"
    return define(source, "value", dict(NAMESPACE), f"expression {text}")


def holds(condition: str, values: Mapping[str, float]) -> bool:
    """Return whether a condition holds for the values of its symbols; it does not where it has no value."""
    try:
        return bool(expression_function(condition, tuple(values))(**values))
    except NO_VALUE:
        return False
