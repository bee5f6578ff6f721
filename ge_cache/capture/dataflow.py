"""Describe a captured graph up to the order of nodes that do not affect each other.

transformers makes rotary tables and masks in loops over `set(config.layer_types)`: another order of the set gives the
same nodes in another order, and the same result.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from gearcache.ge_cache.private_torch import nodes as private_nodes


def dataflow(module: torch.fx.GraphModule) -> list[str]:
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
    return dataflow(part) if isinstance(part, torch.fx.GraphModule) else node.target
