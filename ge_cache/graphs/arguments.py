"""The arguments of operations in a recorded graph, by the names in their schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import fx


def given_arguments(node: fx.Node) -> dict[str, Any]:
    """Return the arguments that an operator was called with, by name; empty for a node that is not an operator."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {}
    return dict(zip((item.name for item in schema.arguments), node.args, strict=False)) | node.kwargs


def written_arguments(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the tensors that an operator writes."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    arguments = given_arguments(node)
    for argument in schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from nodes_in(arguments.get(argument.name))


def nodes_in(value: Any) -> Iterator[fx.Node]:
    """Yield the nodes among arguments, in order and with repetitions."""
    if isinstance(value, fx.Node):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from nodes_in(item)
    elif isinstance(value, dict):
        yield from nodes_in(list(value.values()))
