"""Check whether the order of sets that a method makes affects the result of its trace.

The order of such a set may differ between processes. Membership and sizes ask for none; a loop does, and it may
still make no difference, as in `einops`, whose patterns are checked in loops over sets. So the call is traced again
with each set reversed, rotated by one item, with every other set reversed, and shuffled. A result that depends on the
place of an item, on which of two comes first, or on two sets having one order, differs in one of these traces. A method
may also treat an item by what earlier ones have left, such as a budget: then the traces take other branches, whose
counts are compared.

transformers makes rotary tables and masks in loops over `set(config.layer_types)`: another order of the set gives the
same nodes in another order, and the same result.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator
from types import CodeType
from typing import Any

import torch

from gearcache.ge_cache.capture.captured import Capture
from gearcache.ge_cache.private_torch import nodes as private_nodes

#: Orders that are tried besides the order of insertion.
ARRANGEMENTS = ("reversed", "moved on", "every other reversed", "shuffled")
CAUSE = (
    "it goes through a set that it makes, whose order may differ between processes, and what it gives may "
    "follow from it: use `sorted(...)`, a tuple, a list or a dict"
)
#: Suffix that Dynamo adds to names of globals: a number for each trace.
_OF_TRACE = re.compile(r"_c\d+(_\d+)?$")


def arrangements(sizes: list[int]) -> Iterator[str]:
    """Yield the orders to try, for the sizes of a trace's sets: two items, for example, have one other order."""
    seen = {tuple(tuple(range(size)) for size in sizes)}
    for name in ARRANGEMENTS:
        order = tuple(tuple(arranged([*range(size)], name, number)) for number, size in enumerate(sizes, 1))
        if order not in seen:
            seen.add(order)
            yield name


def arranged(items: list[Any], arrangement: str, number: int) -> list[Any]:
    """Return the items of a set, the `number`-th one of the trace, in another order."""
    if arrangement == "reversed":
        return items[::-1]
    if arrangement == "moved on":
        return items[1:] + items[:1]
    if arrangement == "every other reversed":
        return items[::-1] if number % 2 else items
    return random.Random(number).sample(items, len(items))


def are_alike(capture: Capture, other: Capture) -> bool:
    """Return whether two traces of one call have the same graph, frame and dependencies."""
    return _outline(capture) == _outline(other) and _are_same_constants(capture, other)


def _outline(capture: Capture) -> list[Any]:
    return [
        _dataflow(capture.module),
        _code_outline(capture.frame_code, capture.graph_name),
        sorted((name, access.text) for name, access in capture.attributes.items()),
        [(item.access.text, str(item.sizes), str(item.strides), item.dtype, item.device) for item in capture.inputs],
        *(sorted({repr(check.to_plain()) for check in each}) for each in (capture.checks, capture.tensor_checks)),
        sorted(map(repr, capture.misbound)),
        capture.asks_grad_mode,
        {code.co_qualname if hasattr(code, "co_qualname") else code.co_name for code in capture.traced_code},
    ]


def _code_outline(code: CodeType, graph_name: str) -> list[Any]:
    names = ["graph" if name == graph_name else _OF_TRACE.sub("", name) for name in code.co_names]
    constants = [
        _code_outline(value, graph_name) if isinstance(value, CodeType) else (type(value).__name__, repr(value))
        for value in code.co_consts
    ]
    return [code.co_code, names, code.co_varnames, constants]


def _are_same_constants(capture: Capture, other: Capture) -> bool:
    """Return whether the tensors made by the trace are equal; other tensors are compared by their paths."""
    return all(
        torch.equal(tensor, other.attribute_tensors[name])
        for name, tensor in capture.attribute_tensors.items()
        if name not in capture.attributes
    )


def _dataflow(module: torch.fx.GraphModule) -> list[str]:
    """Return a line for each node, sorted, which is equal for a node of another graph with the same effect and result.

    A node that may have an effect, or draw random numbers, keeps its place among such nodes, and all others keep
    theirs between two of them: those may read what it writes.
    """
    lines: dict[torch.fx.Node, _Line] = {}
    effects = 0
    for node in module.graph.nodes:
        arguments = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lines.__getitem__)
        line = f"{effects} {node.op} {_target(node, module)} {arguments}"
        if not private_nodes.only_computes(node):
            effects += 1
        lines[node] = _Line(hashlib.sha256(line.encode()).hexdigest())
    return sorted(map(repr, lines.values()))


class _Line(str):
    """The digest of a node's line, which no text among the arguments of another is taken for."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{self}>"


def _target(node: torch.fx.Node, module: torch.fx.GraphModule) -> Any:
    """Return what tells a node's target from others; the body of a graph in the graph belongs to it."""
    part = getattr(module, str(node.target), None) if node.op == "get_attr" else None
    return _dataflow(part) if isinstance(part, torch.fx.GraphModule) else node.target
