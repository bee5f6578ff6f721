"""The operations of a recorded graph in order, each described by its effect, for the search for repeats."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from gearcache.ge_cache.graphs.arguments import nodes_in, written_arguments
from gearcache.ge_cache.private_torch import core as private_core


class Operations:
    """The calls of a graph whose nodes have fake values, and the known facts of the tensors between them."""

    def __init__(self, graph: fx.Graph, weights: Sequence[fx.Node], constant: Callable[[str], Hashable]) -> None:
        self.calls = [node for node in graph.nodes if node.op == "call_function"]
        self.number = {node: number for number, node in enumerate(self.calls)}
        self.weights = set(weights)
        self._constant = constant
        bound_tensors = (tensor for node in self.calls for tensor in (*written_arguments(node), *_placed_by(node)))
        self._bound = {private_core.storage_key(tensor.meta["val"]) for tensor in bound_tensors}

    def tokens(self) -> Iterator[Hashable]:
        """Yield a description of each operation's effect, whatever tensors it receives."""
        for node in self.calls:
            yield (str(node.target), self._literal(node.args), self._literal(node.kwargs), spec_of(node.meta["val"]))

    def wiring(self, begin: int, length: int) -> list[int]:
        """Return the origin of each argument of consecutive operations.

        A result of one of them is numbered from the first operation; other values are numbered downwards from -1.
        """
        slots: dict[fx.Node, int] = {}
        origins = []
        for node in self.calls[begin : begin + length]:
            for argument in nodes_in([node.args, node.kwargs]):
                number = self.number.get(argument, -1)
                inside = begin <= number < begin + length
                origins.append(number - begin if inside else -1 - slots.setdefault(argument, len(slots)))
        return origins

    def is_used_outside(self, number: int, begin: int, end: int) -> bool:
        """Return whether a result of an operation in a range is used outside the range."""
        return any(not begin <= self.number.get(user, -1) < end for user in self.calls[number].users)

    def last_use(self, number: int) -> int:
        """Return the last operation that uses an operation's result; past the end for a result of the graph."""
        return max((self.number.get(user, len(self.calls)) for user in self.calls[number].users), default=number)

    def may_cross(self, number: int) -> bool:
        """Return whether an operation's result may pass from one part of the graph to another.

        A part sees its inputs as tensors without shared memory, each at the start of its own, and its memory as it is.
        So only tensors may pass: no lazy conjugate or negative, and none that shares memory with one that the graph
        writes, or whose places are addressed by number.
        """
        value = self.calls[number].meta["val"]
        if not isinstance(value, torch.Tensor) or value.is_conj() or value.is_neg():
            return False
        return private_core.storage_key(value) not in self._bound

    def bytes_of(self, begin: int, length: int) -> int:
        """Return the minimum of bytes that consecutive operations move: their results, and the weights they read."""
        nodes = self.calls[begin : begin + length]
        weights = {argument for node in nodes for argument in node.all_input_nodes if argument in self.weights}
        values = [node.meta["val"] for node in (*nodes, *weights)]
        return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))

    def _kind(self, node: fx.Node) -> Hashable:
        if node in self.weights:
            return "weight"
        return ("constant", self._constant(str(node.target))) if node.op == "get_attr" else "value"

    def _literal(self, value: Any) -> Hashable:
        if isinstance(value, fx.Node):
            return (self._kind(value), spec_of(value.meta["val"]))
        if isinstance(value, (list, tuple)):
            return tuple(self._literal(item) for item in value)
        if isinstance(value, dict):
            return tuple((key, self._literal(item)) for key, item in value.items())
        return (type(value).__name__, repr(value))


def spec_of(value: Any) -> Hashable:
    """Return the facts that two values must share to be interchangeable inputs of a part."""
    if isinstance(value, torch.Tensor):
        layout = (value.dtype, tuple(value.shape), tuple(value.stride()), value.device, value.layout)
        return (*layout, value.is_conj(), value.is_neg())
    if isinstance(value, (list, tuple)):
        return tuple(spec_of(item) for item in value)
    return (type(value).__name__, repr(value))


def _placed_by(node: fx.Node) -> list[fx.Node]:
    """Return the tensors in whose memory an operation addresses places by number."""
    return node.all_input_nodes if "as_strided" in str(node.target) else []
