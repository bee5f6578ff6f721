"""The operations of a recorded graph in order, each as what it does: what a search for repeats compares."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from gearcache.ge_cache.graphs.stretch import Stretch
from gearcache.ge_cache.private_torch import core as private_core
from gearcache.ge_cache.private_torch import fake as private_fake


class Operations:
    """The calls of a graph whose nodes have fake values, and what is known of the tensors between them."""

    def __init__(self, graph: fx.Graph, weights: Sequence[fx.Node], constant: Callable[[str], Hashable]) -> None:
        self.calls = [node for node in graph.nodes if node.op == "call_function"]
        self.number = {node: number for number, node in enumerate(self.calls)}
        self.weights = set(weights)
        self._constant = constant
        (self._output,) = [node for node in graph.nodes if node.op == "output"]
        self._written = {key for node in self.calls for key in _written(node)}

    def tokens(self) -> Iterator[Hashable]:
        """Yield what each operation does, whichever tensors it is given."""
        for node in self.calls:
            yield (str(node.target), self._literal(node.args), self._literal(node.kwargs), _spec(node.meta["val"]))

    def wiring(self, begin: int, length: int) -> list[int]:
        """Return where each argument of some operations in a row comes from.

        What one of them gives counts from the first one; what is from elsewhere is numbered downwards from -1.
        """
        slots: dict[fx.Node, int] = {}
        found = []
        for node in self.calls[begin : begin + length]:
            for used in _nodes_in([node.args, node.kwargs]):
                number = self.number.get(used, -1)
                inside = begin <= number < begin + length
                found.append(number - begin if inside else -1 - slots.setdefault(used, len(slots)))
        return found

    def alive_after(self, stretch: Stretch) -> list[fx.Node] | None:
        """Return what the first repeat hands on; None where the graph may not be cut between repeats or around them.

        A part of the graph sees its inputs as tensors without common memory. So nothing that shares memory with what
        the graph writes goes from one part to another, and only tensors do.
        """
        for begin in stretch.begins():
            for node in self._handed_on(begin, begin + stretch.length):
                if not self._may_cross(node):
                    return None
        for node in self.calls[: stretch.start]:
            goes_on = any(self.number.get(user, stretch.end) >= stretch.start for user in node.users)
            if goes_on and not self._may_cross(node):
                return None
        return list(self._handed_on(stretch.start, stretch.start + stretch.length))

    def _handed_on(self, begin: int, end: int) -> Iterator[fx.Node]:
        for number in range(begin, end):
            if self.is_used_outside(number, begin, end):
                yield self.calls[number]

    def is_used_outside(self, number: int, begin: int, end: int) -> bool:
        """Whether an operation in a range gives something that is used behind the range."""
        return any(not begin <= self.number.get(user, -1) < end for user in self.calls[number].users)

    def bytes_of(self, node: fx.Node) -> int:
        """Return the size of a tensor in bytes."""
        value = node.meta["val"]
        return int(value.numel() * value.element_size())

    def _may_cross(self, node: fx.Node) -> bool:
        value = node.meta["val"]
        return isinstance(value, torch.Tensor) and private_core.storage_key(value) not in self._written

    def _kind(self, node: fx.Node) -> Hashable:
        if node in self.weights:
            return "weight"
        return ("constant", self._constant(str(node.target))) if node.op == "get_attr" else "value"

    def _literal(self, value: Any) -> Hashable:
        if isinstance(value, fx.Node):
            return (self._kind(value), _spec(value.meta["val"]))
        if isinstance(value, (list, tuple)):
            return tuple(self._literal(item) for item in value)
        if isinstance(value, dict):
            return tuple((key, self._literal(item)) for key, item in value.items())
        return (type(value).__name__, repr(value))


def give_values(module: fx.GraphModule, arguments: Sequence[torch.Tensor]) -> None:
    """Run the graph on fakes of some tensors; each node keeps its own as `meta["val"]`."""
    mode = private_fake.fake_mode()
    fakes = [private_fake.with_own_memory(mode, argument) for argument in arguments]
    with mode, torch.no_grad():
        _Recorder(module).run(*fakes)


def drop_aliases(module: fx.GraphModule) -> None:
    """Where an operation gives back a tensor that it was given (`x.to(x.dtype)`, `x.add_(y)`), let uses be of that."""
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        for given in node.all_input_nodes:
            if _is_same(node.meta["val"], given.meta["val"]):
                node.replace_all_uses_with(given, delete_user_cb=lambda user: user is not output)
                if not node.users and not node.is_impure():
                    module.graph.erase_node(node)
                break


def _is_same(left: Any, right: Any) -> bool:
    """Whether two tensors are the same numbers in the same memory."""
    if not (isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)):
        return False
    return (
        _spec(left) == _spec(right)
        and private_core.storage_key(left) == private_core.storage_key(right)
        and left.storage_offset() == right.storage_offset()
        and (left.is_conj(), left.is_neg()) == (right.is_conj(), right.is_neg())
    )


class _Recorder(fx.Interpreter):
    """Keeps what each node gives."""

    def run_node(self, n: fx.Node) -> Any:
        n.meta["val"] = super().run_node(n)
        return n.meta["val"]


def _spec(value: Any) -> Hashable:
    if isinstance(value, torch.Tensor):
        return (value.dtype, tuple(value.shape), tuple(value.stride()), value.device, value.layout)
    if isinstance(value, (list, tuple)):
        return tuple(_spec(item) for item in value)
    return (type(value).__name__, repr(value))


def _written(node: fx.Node) -> Iterator[Hashable]:
    """Yield the memory that an operation writes."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.kwargs.get(argument.name, node.args[position] if position < len(node.args) else None)
            for used in _nodes_in(given):
                yield private_core.storage_key(used.meta["val"])


def _nodes_in(value: Any) -> Iterator[fx.Node]:
    if isinstance(value, fx.Node):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _nodes_in(item)
    elif isinstance(value, dict):
        yield from _nodes_in(list(value.values()))
