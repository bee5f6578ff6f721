"""The arguments of operations in a recorded graph, by the names in their schemas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import fx


def given_arguments(node: fx.Node) -> dict[str, Any]:
    """Return the arguments that an operator was called with, by name; empty for a node that is not an operator."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {}
    return dict(zip((item.name for item in schema.arguments), node.args, strict=False)) | node.kwargs


def draws_nothing(arguments: Mapping[str, Any]) -> bool:
    """Whether an operator that may draw random numbers draws none, by its arguments and their defaults.

    Attention, dropout and recurrent layers may have a dropout of 0; dropout and RReLU draw in training only.
    """
    if any(arguments.get(name) is False for name in ("train", "training")):
        return True
    chances = [arguments[name] for name in ("dropout_p", "dropout", "p") if name in arguments]
    return bool(chances) and all(isinstance(chance, (int, float)) and chance == 0 for chance in chances)


def written_arguments(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the tensors that an operator writes."""
    yield from nodes_in(written_values(node.target, node.args, node.kwargs))


def written_values(operator: Any, args: Iterable[Any], kwargs: Mapping[str, Any] | None) -> list[Any]:
    """Return the arguments that an operator writes, tensors and lists of tensors; none for what is no operator."""
    schema = getattr(operator, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    given = dict(zip((item.name for item in schema.arguments), args, strict=False)) | dict(kwargs or {})
    written = [item.name for item in schema.arguments if item.alias_info is not None and item.alias_info.is_write]
    return [given.get(name) for name in written]


def nodes_in(value: Any) -> Iterator[fx.Node]:
    """Yield the nodes among arguments, in order and with repetitions."""
    if isinstance(value, fx.Node):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from nodes_in(item)
    elif isinstance(value, dict):
        yield from nodes_in(list(value.values()))
