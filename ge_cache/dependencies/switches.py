"""Refuse switches of torch that a method sets: a recorded graph has operators, and calls nothing besides them.

Dynamo writes a call such as `torch.set_default_dtype(...)` into its graph, as a call without tensors whose result is
not used. Nothing in a recorded graph would be left of it. So such a call is refused, unless it is known that recording
does what it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import fx

from gearcache.errors import CaptureError
from gearcache.ge_cache.private_torch import nodes as private_nodes
from gearcache.guards.evidence.code import is_library_file
from gearcache.guards.evidence.names import name_of

#: A frame in the stack of a node: file, line, function, and the code if it is known.
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)(?:\n +(?P<code>.+))?')


def check_switches(method: str, module: fx.GraphModule) -> None:
    """Refuse a captured graph that sets a switch of torch by a call; an assignment is refused as it is traced."""
    for node in _nodes(module):
        if _has_only_effect(node) and not private_nodes.is_honoured(node):
            name = name_of(node.target).replace(":", ".")
            raise CaptureError(
                method,
                f"it calls `{name}`{_place(node)}, which a graph does not honour: call it around the call of the "
                "cached method",
            )


def _nodes(module: fx.GraphModule) -> Iterator[fx.Node]:
    """Yield the nodes of a graph, and of the graphs in it."""
    for inner in module.modules():
        if isinstance(inner, fx.GraphModule):
            yield from inner.graph.nodes


def _has_only_effect(node: fx.Node) -> bool:
    """Whether a node calls a function, not an operator, that neither takes a tensor nor returns something used."""
    return (
        node.op == "call_function"
        and not node.users
        and not private_nodes.is_operator(node)
        and not any(_is_value(part) for part in (node, *node.all_input_nodes))
    )


def _is_value(node: fx.Node) -> bool:
    """Whether a node has tensors or symbolic numbers: a function of them computes, and what nobody uses can go."""
    value = node.meta.get("example_value")
    parts = value if isinstance(value, (list, tuple)) else (value,)
    return any(isinstance(part, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)) for part in parts)


def _place(node: fx.Node) -> str:
    """Return the line of the user's program in which a node was made."""
    frames = [*_FRAME.finditer(node.stack_trace or "")]
    own_frames = [frame for frame in frames if not is_library_file(frame["file"])] or frames
    if not own_frames:
        return ""
    frame = own_frames[-1]
    code = f": `{frame['code'].strip()}`" if frame["code"] else ""
    return f' (File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}{code})'
