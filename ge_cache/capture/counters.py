"""Ints that the frame writes (`self.count += 1`): kept symbolic, so that one variant serves every value.

A first capture finds them: an int attribute that the trace guards as a constant and that its frame assigns. A second
capture makes them symbols. Where only other numbers are computed from them, these are computed by the graph call
(`count + 1`) and the graph itself takes tensors only. Where a tensor or a branch depends on such an int, the first
capture is kept: each value has a graph of its own, which is right whatever the int is used for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.symbols import Symbols
from gearcache.ge_cache.capture.written import Written
from gearcache.ge_cache.private_torch import symbols as private_symbols
from gearcache.guards.access import Access
from gearcache.guards.evidence.checks import Check
from gearcache.guards.gears.expressions import checked_expression


@dataclass
class Numbers:
    """The symbolic ints of one capture: symbol -> Dynamo's source, and the outputs that are computed from them."""

    symbols: dict[Any, Any] = field(default_factory=dict)
    outputs: dict[int, Any] = field(default_factory=dict)

    def names(self) -> dict[Any, str]:
        """Return the name of each symbol in stored expressions, apart from those of sizes."""
        return {symbol: f"u{1000 + index}" for index, symbol in enumerate(self.symbols)}


def written_ints(checks: list[Check], written: Written, names: Mapping[Access, str], instance: str) -> list[str]:
    """Return Dynamo's names of ints that the trace fixed and the frame writes; `names` has all that it knows by path.

    Those in arguments stay fixed: a graph call reads its ints without them.
    """
    found = []
    for check in checks:
        is_int = check.kind == "constant" and type(check.expected) is int
        is_own = check.access.root[0] != "argument" or check.access.root[1] == instance
        if is_int and is_own and check.access in names and written.leads_to(check.access):
            found.append(names[check.access])
    return found


def take_numbers(graph: fx.Graph, wanted: tuple[str, ...]) -> Numbers:
    """Take the wanted ints out of a graph; `CaptureError` when something else than a number depends on one."""
    numbers = Numbers()
    inputs = []
    for node in graph.nodes:
        if node.op == "placeholder" and isinstance(node.meta["example_value"], torch.SymInt):
            source = node.meta["grapharg"].source
            if source.name in wanted:
                numbers.symbols[node.meta["example_value"].node.expr] = source
                inputs.append(node)
    if not inputs:
        return numbers
    (output,) = [node for node in graph.nodes if node.op == "output"]
    results = list(output.args[0])
    for index, node in enumerate(results):
        value = node.meta.get("example_value") if isinstance(node, fx.Node) else None
        if isinstance(value, torch.SymInt) and set(numbers.symbols) & value.node.expr.free_symbols:
            numbers.outputs[index] = value.node.expr
            results[index] = None
    output.args = (type(output.args[0])(results),)
    for node in reversed(list(graph.nodes)):
        is_number = isinstance(node.meta.get("example_value"), (torch.SymInt, torch.SymBool))
        if is_number and not node.users and node.op != "placeholder":
            graph.erase_node(node)
    used = [node for node in inputs if node.users]
    if used:
        raise CaptureError("", f"its graph depends on the number `{used[0].meta['grapharg'].source.name}`")
    for node in inputs:
        graph.erase_node(node)
    return numbers


def check_unguarded(numbers: Numbers, shape_env: Any) -> None:
    """Raise `CaptureError` when the trace branched on one of the ints."""
    for guard in shape_env.guards:
        if set(numbers.symbols) & getattr(guard.expr, "free_symbols", set()):
            raise CaptureError("", f"its trace branches on a number: {guard.expr}")


def number_results(
    numbers: Numbers, results: list[list[Any]], symbols: Symbols, assignment: Mapping[Any, int] | None
) -> None:
    """Put the expressions of computed ints into the results; sizes in them take their value at a gear (None: stay)."""
    if not numbers.outputs:
        return
    import sympy

    names = {symbol: sympy.Symbol(name, integer=True) for symbol, name in numbers.names().items()}
    for index, expression in numbers.outputs.items():
        sizes = expression.free_symbols - set(names)
        values = {
            size: sympy.sympify(symbols.simplify(size) if assignment is None else symbols.value(size, assignment))
            for size in sizes
        }
        text = checked_expression(private_symbols.print_expression(expression.xreplace(names | values)))
        results[index] = ["constant", {"expression": text}]
