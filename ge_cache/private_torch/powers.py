"""Make the code of a graph compute powers of negative numbers: torch writes `-2 ** x` for `(-2) ** x`.

`torch.fx.graph.magic_methods` of torch 2.13 to 2.15 has no brackets, and a sign binds less than a power.
"""

from __future__ import annotations

import operator

from torch import fx


def name_powers(graph: fx.Graph) -> None:
    """Call `pow` for powers of negative numbers; graphs within a graph are refused elsewhere."""
    for node in graph.nodes:
        if _is_of_negative(node):
            node.target = pow


def _is_of_negative(node: fx.Node) -> bool:
    if node.op != "call_function" or node.target not in (operator.pow, operator.ipow):
        return False
    base = node.args[0]
    return isinstance(base, (int, float)) and str(base).startswith("-")
