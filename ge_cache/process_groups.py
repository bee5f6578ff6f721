"""Process groups of graphs: identified by role in compiled and stored graphs, by name where they run.

Group names are counted per process, in the order in which groups are made. The ranks {0, 1} and {2, 3} of two
tensor-parallel groups run one graph, and their groups have two names; in a stored graph both are the first group that
it communicates in. A gear keeps the name, which its evidence compares, and a load restores it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import fx

from gearcache.errors import CaptureError
from gearcache.ge_cache.aten import Plain, resolve_target
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.guards.evidence.names import a_type

_ARGUMENT = "group_name"


def role(number: int) -> str:
    """Return a stored graph's name for its group of a number, counted in the order of first communication."""
    return f"gearcache-group-{number}"


def named_groups(graph: fx.Graph) -> dict[Any, list[int] | None]:
    """Return name -> ranks of the groups that a graph communicates in; None for a name without a group here."""
    ranks_by_name: dict[Any, list[int] | None] = {}
    for node in graph.nodes:
        position = _position(node.target)
        if position is not None:
            name = node.kwargs.get(_ARGUMENT, node.args[position] if position < len(node.args) else None)
            ranks_by_name[name] = private_core.process_group_ranks(name) if isinstance(name, str) else None
    return ranks_by_name


def stored_groups(method: str, graph: fx.Graph) -> list[list[Any]]:
    """Return `[name, ranks]` of each group that a graph communicates in; `CaptureError` for one that does not exist."""
    groups = named_groups(graph)
    for name, ranks in groups.items():
        if ranks is None:
            shown = repr(name) if isinstance(name, str) else a_type(name)
            raise CaptureError(
                method,
                f"its graph communicates in the process group {shown}, and this process has no group of that name",
            )
    return [[name, ranks] for name, ranks in groups.items()]


def renamed(graph: Plain, names: Mapping[str, str]) -> Plain:
    """Return a stored graph whose groups have other names; `KeyError` for a group without one."""
    if not names:
        return graph
    nodes = [_renamed_call(node, names) if node[0] == "call" else node for node in graph["nodes"]]
    return {**graph, "nodes": nodes}


def _renamed_call(node: Plain, names: Mapping[str, str]) -> Plain:
    kind, target, positional, keyword = node
    position = _position(resolve_target(target))
    if position is None:
        return node
    if position < len(positional):
        positional = [*positional[:position], names[positional[position]], *positional[position + 1 :]]
    else:
        pairs = [[key, names[value] if key == _ARGUMENT else value] for key, value in keyword["dict"]]
        keyword = {**keyword, "dict": pairs}
    return [kind, target, positional, keyword]


def _position(target: Any) -> int | None:
    """Return the position of an operator's argument that names a group."""
    schema = getattr(target, "_schema", None)
    return next(_group_positions(schema), None) if schema is not None else None


def _group_positions(schema: Any) -> Iterator[int]:
    return (number for number, argument in enumerate(schema.arguments) if argument.name == _ARGUMENT)
