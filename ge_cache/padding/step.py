"""One operator call of a graph under proof, as the padding rules see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import fx

from gearcache.ge_cache.padding.extents import Dim, Extent


class Dependent(Exception):
    """A real position may depend on filling; carries the reason."""


class Walk(Protocol):
    """The interface of the proof that a rule may use."""

    label: str

    def value(self, given: Any) -> Any:
        """Return the value of a node's argument."""

    def sizes(self, tensor: torch.Tensor) -> list[Any]:
        """Return the sizes of a fake tensor."""

    def unpadded_dims(self, sizes: list[Any]) -> tuple[Dim, ...]:
        """Return one factor per dim."""


class Step:
    """One operator call of the graph under proof: its arguments by name, sizes as ints or expressions."""

    def __init__(self, proof: Walk, node: fx.Node) -> None:
        self.proof = proof
        self.node = node
        self.name = str(node.target).removeprefix("aten.")
        self.schema = node.target._schema  # type: ignore[union-attr]
        names = [item.name for item in self.schema.arguments]
        defaults = {item.name: item.default_value for item in self.schema.arguments if item.has_default_value()}
        call_arguments = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        self.given = defaults | call_arguments

    @property
    def packet(self) -> str:
        """Return the operator's name without overload, and without the `_` of writing in place."""
        if self.node.target.namespace != "aten":  # type: ignore[union-attr]
            return self.name
        name = self.name.partition(".")[0]
        if name.startswith("__"):
            return name.replace("__i", "__", 1)  # `__iand__`
        return name.removesuffix("_")

    def value(self, name: str) -> Any:
        """Return an argument: an `Extent`, a size, a list of these, or a constant of the graph."""
        return self.proof.value(self.given.get(name))

    def extent(self, name: str) -> Extent:
        """Return a tensor argument."""
        extent = self.value(name)
        if not isinstance(extent, Extent):
            raise Dependent(f"`{self.name}` without a tensor as `{name}`")
        return extent

    def sizes(self, name: str) -> list[Any]:
        """Return the sizes of a tensor argument."""
        return self.proof.sizes(self.given[name].meta["val"])

    def tensors(self) -> dict[str, fx.Node]:
        """Return all tensor arguments by name; those of a list as `name[0]`."""
        tensor_nodes: dict[str, fx.Node] = {}
        for name, value in self.given.items():
            items = {f"{name}[{index}]": item for index, item in enumerate(value)} if is_list(value) else {name: value}
            for label, item in items.items():
                if isinstance(item, fx.Node) and isinstance(item.meta.get("val"), torch.Tensor):
                    tensor_nodes[label] = item
        return tensor_nodes

    def result_sizes(self) -> list[list[Any]]:
        """Return the sizes of each result."""
        value = self.node.meta["val"]
        values = value if isinstance(value, (list, tuple)) else [value]
        return [self.proof.sizes(item) if isinstance(item, torch.Tensor) else [] for item in values]

    def fresh(self) -> Extent:
        """Return a result whose padded dims are exactly those with a padded size."""
        return Extent(self.proof.unpadded_dims(self.result_sizes()[0]))

    def require_unpadded(self, what: str, *dims: Dim) -> None:
        """Refuse when any of some dims has filling."""
        if any(is_padded for dim in dims for _, is_padded in dim):
            raise Dependent(f"`aten.{self.name}` {what} {self.proof.label}")

    @property
    def aliased(self) -> list[str]:
        """The names of the arguments that a result may share memory with."""
        return [item.name for item in self.schema.arguments if item.alias_info is not None]

    @property
    def is_written(self) -> list[str]:
        """The names of the arguments that the operator writes."""
        return [item.name for item in self.schema.arguments if item.alias_info is not None and item.alias_info.is_write]


Rule = Callable[[Step], "Extent | list[Extent]"]


class PaddingRules(dict[str, Rule]):
    """Padding rules of operators, by name (`sum`: all overloads, `transpose.int`: one)."""

    def of(self, *names: str) -> Callable[[Rule], Rule]:
        """Return a decorator that registers a function as the rule of some operators."""

        def register(function: Rule) -> Rule:
            self.update(dict.fromkeys(names, function))
            return function

        return register


def is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def as_list(value: Any) -> list[Any]:
    return list(value) if is_list(value) else [value]
