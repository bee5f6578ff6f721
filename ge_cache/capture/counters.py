"""Ints that the frame writes (`self.count += 1`): kept symbolic, so that few variants serve all values.

A first capture finds them: an int attribute that the trace guards as a constant and that its frame assigns. A second
capture makes them symbols, and its frame passes them to the graph call, behind the tensors. Numbers that are computed
from them are computed by the graph call (`count + 1`): those that the frame wants become results, those that an
operator wants are *feeds*, which the graph takes as tensors of one element. What the trace assumed about the ints (a
branch on one) becomes a call check, see `ge_cache.capture.number_checks`.

Where sizes depend on such an int, or anything else is not plain arithmetic, the first capture is kept: each value has a
graph of its own, which is right whatever the int is used for.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.symbols import Symbols
from gearcache.ge_cache.capture.written import Written
from gearcache.ge_cache.private_torch import symbols as private_symbols
from gearcache.guards.access import Access
from gearcache.guards.evidence.checks import Check
from gearcache.guards.gears.expressions import checked_expression

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_INFIX = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.floordiv: "//",
    operator.mod: "%",
}
_COMPARISONS = {
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}
_CALLS = {torch.sym_max: "max", torch.sym_min: "min", operator.neg: "-"}
_DIVISIONS = (operator.floordiv, operator.mod)


def feed(number: int) -> Any:
    """Stand in a captured graph for what a feed gives; `ge_cache.graphs.static` puts an input there."""
    raise NotImplementedError(number)


class SizeDependence(CaptureError):
    """The trace compares an int with a size: where that size is fixed, the int may still stay symbolic."""


@dataclass(frozen=True)
class Feed:
    """A number that operators of the graph take: the text that the graph call computes, and its type."""

    text: str
    kind: str

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the tensor that the graph takes in its place."""
        return torch.int64 if self.kind == "int" else torch.float64


@dataclass
class Numbers:
    """The symbolic ints of one capture.

    Texts are over the names of the ints (`u1000`) and, in `outputs` only, `size0` and so on, which `sizes` has.
    """

    #: Symbol -> Dynamo's source.
    symbols: dict[Any, Any] = field(default_factory=dict)
    #: The names of those that the frame passes, in order.
    passed: list[str] = field(default_factory=list)
    nodes: list[fx.Node] = field(default_factory=list)
    outputs: dict[int, str] = field(default_factory=dict)
    feeds: list[Feed] = field(default_factory=list)
    #: What the graph call divides by, as texts: no such int may be 0.
    divisors: list[str] = field(default_factory=list)
    sizes: list[Any] = field(default_factory=list)

    def names(self) -> dict[Any, str]:
        """Return the name of each symbol in stored expressions, apart from those of sizes."""
        return {symbol: f"u{1000 + index}" for index, symbol in enumerate(self.symbols)}


def written_ints(checks: list[Check], written: Written, names: Mapping[Access, str]) -> list[str]:
    """Return Dynamo's names of ints that the trace fixed and the frame writes; `names` has all it knows by path."""
    return [
        names[check.access]
        for check in checks
        if check.kind == "constant"
        and type(check.expected) is int
        and check.access in names
        and written.leads_to(check.access)
    ]


def take_numbers(graph: fx.Graph, wanted: tuple[str, ...], shape_env: Any) -> Numbers:
    """Take all that is computed from the wanted ints out of a graph; `CaptureError` for what is no plain arithmetic.

    Their placeholders stay, behind all others and without a use: they make the frame pass the ints.
    """
    numbers = Numbers(private_symbols.number_symbols(shape_env, wanted))
    if not numbers.symbols:
        return numbers
    texts = _Texts(graph, numbers)
    _take_outputs(graph, numbers, texts)
    _take_feeds(graph, numbers, texts)
    for node in reversed(texts.computed):
        if node.op != "placeholder":
            if node.users:
                raise CaptureError("", f"its graph depends on the number {node}")
            graph.erase_node(node)
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    for node in numbers.nodes:  # in the order of `passed`
        if node is not last:
            last.append(node)
        last = node
    return numbers


class _Texts:
    """The texts of all nodes of a graph that are computed from its wanted ints."""

    def __init__(self, graph: fx.Graph, numbers: Numbers) -> None:
        self._numbers = numbers
        self._texts: dict[fx.Node, str] = {}
        names = numbers.names()
        for node in graph.nodes:
            value = node.meta.get("example_value")
            if node.op == "placeholder":
                if isinstance(value, torch.SymInt) and node.meta["grapharg"].source in numbers.symbols.values():
                    self._texts[node] = names[value.node.expr]
                    numbers.passed.append(names[value.node.expr])
                    numbers.nodes.append(node)
            elif isinstance(value, _NUMBERS) and any(item in self._texts for item in node.all_input_nodes):
                self._texts[node] = self._computed(node)

    @property
    def computed(self) -> list[fx.Node]:
        """The nodes that have a text, in order."""
        return list(self._texts)

    def __contains__(self, node: fx.Node) -> bool:
        return node in self._texts

    def __getitem__(self, node: fx.Node) -> str:
        return self._texts[node]

    def _computed(self, node: fx.Node) -> str:
        target, arguments = node.target, [self._argument(item) for item in node.args]
        sign = _INFIX.get(target) or _COMPARISONS.get(target)  # type: ignore[arg-type]
        if node.kwargs or (sign is None and target not in _CALLS):
            raise CaptureError("", f"it computes `{node.target}` of a number")
        if sign is None:
            return f"{_CALLS[target]}({', '.join(arguments)})"  # type: ignore[index]
        left, right = arguments
        if target in _DIVISIONS and isinstance(node.args[1], fx.Node):
            if "size" in right:
                raise CaptureError("", f"it divides a number by what is computed from a size: `{right}`")
            self._numbers.divisors.append(right)
        return f"({left} {sign} {right})"

    def _argument(self, item: Any) -> str:
        if type(item) is int:
            return f"({item!r})" if item < 0 else repr(item)
        if not isinstance(item, fx.Node):
            raise CaptureError("", f"it computes with a number and {item!r}")
        if item in self._texts:
            return self._texts[item]
        value = item.meta.get("example_value")
        if not isinstance(value, torch.SymInt):
            raise CaptureError("", f"it computes with a number and {item}")
        self._numbers.sizes.append(value.node.expr)
        return f"size{len(self._numbers.sizes) - 1}"


def _take_outputs(graph: fx.Graph, numbers: Numbers, texts: _Texts) -> None:
    (output,) = [node for node in graph.nodes if node.op == "output"]
    results = list(output.args[0])
    for index, node in enumerate(results):
        if isinstance(node, fx.Node) and node in texts:
            numbers.outputs[index] = texts[node]
            results[index] = None
    output.args = (type(output.args[0])(results),)


def _take_feeds(graph: fx.Graph, numbers: Numbers, texts: _Texts) -> None:
    """Let operators take a feed in place of a number; equal texts share one."""
    made: dict[Feed, fx.Node] = {}
    (last,) = [node for node in graph.nodes if node.op == "placeholder"][-1:]
    for node in texts.computed:
        takers = [user for user in node.users if user not in texts]
        if not takers:
            continue
        value, text = node.meta["example_value"], texts[node]
        if "size" in text:
            raise SizeDependence("", f"its graph takes a number that is computed from a size: `{text}`")
        if isinstance(value, torch.SymBool):
            raise CaptureError("", f"its graph takes whether a number is another: `{text}`")
        kind = Feed(text, "int" if isinstance(value, torch.SymInt) else "float")
        if kind not in made:
            with graph.inserting_after(last):
                made[kind] = graph.call_function(feed, (len(numbers.feeds),))
            made[kind].meta["example_value"] = value
            numbers.feeds.append(kind)
        for user in takers:
            user.replace_input_with(node, made[kind])


def number_results(
    numbers: Numbers, results: list[list[Any]], symbols: Symbols, assignment: Mapping[Any, int] | None
) -> None:
    """Put the expressions of computed ints into the results; sizes in them take their value at a gear (None: stay)."""

    def size(match: re.Match[str]) -> str:
        expression = numbers.sizes[int(match[1])]
        found = symbols.simplify(expression) if assignment is None else symbols.value(expression, assignment)
        return str(found) if isinstance(found, int) else f"({private_symbols.print_expression(found)})"

    for index, text in numbers.outputs.items():
        results[index] = ["constant", {"expression": checked_expression(re.sub(r"\bsize(\d+)\b", size, text))}]
