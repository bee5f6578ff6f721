"""Record one graph with dynamic dims, for methods without gears."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from gearcache.errors import CaptureError
from gearcache.ge_cache.aten import encode_graph
from gearcache.ge_cache.capture.captured import Capture
from gearcache.ge_cache.capture.number_choice import NumberRefused
from gearcache.ge_cache.capture.symbols import Symbols
from gearcache.ge_cache.graphs.number_inputs import (
    GearSymbols,
    check_floats,
    check_operands,
    mixed_conditions,
    number_rows,
    value_conditions,
)
from gearcache.ge_cache.graphs.static import (
    GearGraph,
    attribute_inputs,
    float_tensors,
    input_specs,
    lift_attributes,
    record,
    tensor_placeholders,
    trace_gear,
)
from gearcache.ge_cache.private_torch import fake as private_fake
from gearcache.ge_cache.private_torch import symbols as private_symbols
from gearcache.guards.dispatch.stored.variant import StoredGear
from gearcache.guards.gears.expressions import checked_expression, expression_function
from gearcache.guards.gears.parse import GearSpec

#: Symbol, and the place of its value: input, `size` or `stride`, dim.
Owner = tuple[str, int, str, int]


def dynamic_gear(
    capture: Capture,
    lifted: fx.GraphModule,
    symbols: Symbols,
    decompositions: Mapping[Any, Any] | None,
    spec: GearSpec,
    assignment: Mapping[Any, int] | None = None,
) -> tuple[GearGraph, StoredGear]:
    """Record the graph with its sizes symbolic; relations among them become conditions of the call.

    So do the ranges that the spec declares. With an `assignment` only the open dims are symbolic.
    """
    if assignment is None:
        graph, printer = taken_graph(capture, dynamic=True) or record_dynamic(capture, lifted, symbols, decompositions)
    else:
        printer = SizePrinter(capture, symbols, GearSymbols(capture, symbols, assignment))
        graph = trace_gear(capture, lifted, decompositions, assignment)
    owners = printer.owners()
    graph.inputs = input_specs(capture, assignment or {})
    sizes = [[printer.simple(size) for size in item.sizes] for item in capture.inputs]
    strides = [[printer.simple(stride) for stride in item.strides] for item in capture.inputs]
    measures, contiguous, ties = printer.layout(sizes, strides, owners)
    conditions = list(dict.fromkeys([*printer.conditions(owners), *ties, *printer.declared(spec, sizes)]))
    conditions += [text for text in graph.conditions if text not in conditions]
    call_names = {name for name, *_ in [*owners, *measures]} | set(capture.numbers.names.values())
    _check_names(capture, call_names, [*conditions, *_expressions(graph.results)])
    graph.symbols = {
        "sizes": [[printer.plain(size) for size in dims] for dims in sizes],
        "strides": [[printer.plain(stride) for stride in dims] for dims in strides],
        "hints": [[owner[0], printer.hint(owner[0])] for owner in owners],
    }
    stored = StoredGear(
        text="dynamic",
        sizes=[[size if isinstance(size, int) else None for size in dims] for dims in sizes],
        strides=[[stride if isinstance(stride, int) else None for stride in dims] for dims in strides],
        results=graph.results,
        header={},
        blobs={},
        written=graph.written_inputs,
        symbols=[list(owner) for owner in owners],
        conditions=conditions,
        measures=measures,
        contiguous=contiguous,
    )
    return graph, stored


def check_numbers(capture: Capture, decompositions: Mapping[Any, Any] | None, *, compiles: bool, is_ge: bool) -> None:
    """Record a graph at the sizes of its trace; `CaptureError` where its numbers cannot be inputs of the graph."""
    symbols, lifted = capture.symbols(), lift_attributes(capture)
    sizes = [size for item in capture.inputs for size in item.sizes]
    printer: SizePrinter | None = None
    try:
        if any(symbols.symbols_of(size) for size in sizes):
            graph, printer = record_dynamic(capture, lifted, symbols, decompositions)
            conditions, symbols_in = [*graph.conditions, *printer.guards()], printer.symbols_in
        else:
            graph = trace_gear(capture, lifted, decompositions, {})
            conditions, symbols_in = graph.conditions, GearSymbols(capture, symbols, {}).symbols_in
    except NumberRefused:
        raise
    except CaptureError as error:
        if floats := frozenset().union(*capture.numbers.graph_floats.values()):
            raise NumberRefused(capture.method, error.cause, floats) from error
        raise
    check_operands(graph.module.graph, capture.method, symbols_in, compiles=compiles, is_ge=is_ge)
    if compiles:
        check_floats(graph.module.graph, len(graph.numbers), capture)
    _check_conditions(capture, conditions)
    for text in _expressions(graph.results):
        checked_expression(text)
    encode_graph(capture.method, graph.module)
    capture.recorded = graph, printer


def taken_graph(capture: Capture, *, dynamic: bool) -> tuple[GearGraph, Any] | None:
    """Return the graph that `check_numbers` recorded, with symbolic sizes or without; once, as its user changes it."""
    if capture.recorded is None or (capture.recorded[1] is not None) != dynamic:
        return None
    recorded, capture.recorded = capture.recorded, None
    return recorded


def _check_conditions(capture: Capture, conditions: list[str]) -> None:
    """Raise `NumberRefused` where compiled code would not serve even the traced call: a number exceeds 64 bits."""
    names = {name: symbol for symbol, name in capture.numbers.names.items()}
    passed = {capture.numbers.names[symbol] for symbol in capture.numbers.passed}
    values = {name: int(capture.shape_env.backed_var_to_val[symbol]) for name, symbol in names.items()}
    for text in conditions:
        text_names = set(re.findall(r"\b[sun]\d+\b", text))
        if not_passed := text_names & set(names) - passed:
            cause = f"its graph depends on `{text}`, of a number that it does not get"
            raise NumberRefused(capture.method, cause, map(names.get, not_passed))
        if text_names <= set(names) and not expression_function(text, tuple(values))(**values):
            raise NumberRefused(
                capture.method, f"`{text}` does not hold in the traced call", map(names.get, text_names)
            )


def record_dynamic(
    capture: Capture, lifted: fx.GraphModule, symbols: Symbols, decompositions: Mapping[Any, Any] | None
) -> tuple[GearGraph, SizePrinter]:
    """Record the graph with the sizes that the trace left symbolic."""
    placeholders = tensor_placeholders(capture)
    mode = placeholders[0].meta["example_value"].fake_mode
    fakes = [private_fake.with_own_memory(mode, node.meta["example_value"]) for node in placeholders]
    attributes, specs = attribute_inputs(capture, mode)
    printer = SizePrinter(capture, symbols)
    ints = [node.meta["example_value"] for node in capture.numbers.nodes]
    values = [*float_tensors(capture, mode), *ints]
    with mode.shape_env.ignore_fresh_unbacked_symbols():
        graph = record(capture, lifted, mode, fakes, attributes, decompositions, printer.number, values)
    graph.floats = len(capture.numbers.graph_floats)
    if capture.numbers:
        graph.numbers = number_rows(capture)
        graph.conditions = value_conditions(graph.module.graph, printer.text_of, printer.symbols_in)
    graph.attributes = specs
    return graph, printer


class SizePrinter:
    """Prints sizes as expressions over the symbols' names."""

    def __init__(self, capture: Capture, symbols: Symbols, at_gear: GearSymbols | None = None) -> None:
        self._capture = capture
        self._symbols = symbols
        self._env = capture.shape_env
        #: Returns an int, or an expression over symbols that stay symbolic.
        self.simple = symbols.simplify if at_gear is None else at_gear.simple
        rows = [size for item in capture.inputs for size in (*item.sizes, *item.strides)]
        simple = [self.simple(size) for size in rows]
        sized = {size for size in simple if not isinstance(size, int) and size.is_Symbol}
        #: Names of the numbers that are not the size of an input.
        self._names = {
            symbol: private_symbols.number_symbol(name)
            for symbol, name in capture.numbers.names.items()
            if symbol not in sized
        }

    def text(self, expression: Any) -> str:
        """Return Python source; `CaptureError` when the expression is not simple arithmetic."""
        if self._capture.numbers.joins_floats and private_symbols.computes_floats(expression):
            raise CaptureError(self._capture.method, f"a size of its graph, `{expression}`, is computed with floats")
        text = private_symbols.print_expression(expression.xreplace(self._names) if self._names else expression)
        try:
            return checked_expression(text)
        except ValueError as error:
            raise CaptureError(self._capture.method, f"a size of its graph is too complex: {error}") from None

    def plain(self, size: Any) -> Any:
        return size if isinstance(size, int) else {"expression": self.text(size)}

    def number(self, value: Any) -> Any:
        """Return an int, or an expression over the symbols."""
        if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
            return self.plain(self.simple(value.node.expr))
        return value

    def text_of(self, value: Any) -> tuple[str | None, int | None, int | None]:
        """Return a symbolic int as source (None for a constant), and its known bounds."""
        size = self.simple(value.node.expr)
        if isinstance(size, int):
            return None, None, None
        return (self.text(size), *private_symbols.bounds_of(self._env, size))

    def symbols_in(self, value: Any) -> set[Any]:
        """Return the numbers that a symbolic number of the graph depends on."""
        return set(value.node.expr.free_symbols) & set(self._capture.numbers.symbols)

    def owners(self) -> list[Owner]:
        """Return for each free symbol the first size, or else stride, of an input that equals this symbol."""
        by_name: dict[str, Owner] = {}
        symbols: set[Any] = set()
        rows = [("size", index, item.sizes) for index, item in enumerate(self._capture.inputs)]
        rows += [("stride", index, item.strides) for index, item in enumerate(self._capture.inputs)]
        for kind, index, dims in rows:
            for dim, number in enumerate(dims):
                simple = self.simple(number)
                if isinstance(simple, int):
                    continue
                symbols |= set(simple.free_symbols)
                if simple.is_Symbol:
                    by_name.setdefault(str(simple), (str(simple), index, kind, dim))
        ownerless = sorted(str(symbol) for symbol in symbols - set(self._names) if str(symbol) not in by_name)
        if ownerless:
            raise CaptureError(self._capture.method, f"no input dim gives the size {ownerless[0]} by itself")
        return [by_name[name] for name in sorted(by_name)]

    def hint(self, name: str) -> int:
        """Return a symbol's value in the traced call."""
        return self._symbols.hint(next(item for item in self._env.var_to_range if str(item) == name))

    def bounds(self, name: str) -> tuple[int, int | None]:
        """Return the least and the greatest value of a symbol (None: unbounded)."""
        symbol = next(item for item in self._env.var_to_range if str(item) == name)
        bounds = self._env.var_to_range[symbol]
        upper = int(bounds.upper) if bounds.upper.is_Integer else None
        return int(bounds.lower), upper

    def declared(self, spec: GearSpec, sizes: list[list[Any]]) -> list[str]:
        """Return the declared ranges as conditions on the symbols; dims that are not symbolic have a fixed size."""
        occurrences = []
        for axis in spec.ranges:
            for item, input_sizes in zip(self._capture.inputs, sizes, strict=True):
                if axis.matches(item.access.text):
                    size = input_sizes[axis.dim]
                    text = str(size) if isinstance(size, int) else f"({self.text(size)})"
                    occurrences.append((axis, f"{item.access.text}.size({axis.dim})", text))
        conditions = [text for check in spec.range_checks(occurrences) for text in check.conditions]
        return [
            checked_expression(text) for text in conditions if re.search(r"\b[su]\d", text) and not self._is_known(text)
        ]

    def _is_known(self, text: str) -> bool:
        """Return whether a condition says only that a symbol is 1 or more, which the trace's own bounds already say."""
        match = re.fullmatch(r"\((\w+)\) >= 1", text)
        return match is not None and self.bounds(match[1])[0] >= 1

    def layout(
        self, sizes: list[list[Any]], strides: list[list[Any]], owners: list[Owner]
    ) -> tuple[list[list[Any]], list[int], list[str]]:
        """Return how sizes and strides depend on the free symbols: measures, contiguous inputs, conditions.

        The compiled graph computes every address from the free symbols alone, so every other symbolic value must be
        compared with what the trace says about it.
        """
        numbers = itertools.count(1 + max((int(name[1:]) for name, *_ in owners), default=0))
        owned = {owner[1:] for owner in owners}
        measures: list[list[Any]] = []
        contiguous: list[int] = []
        ties: list[str] = []

        def tie(index: int, kind: str, dim: int, expected: Any) -> None:
            name = f"s{next(numbers)}"
            measures.append([name, index, kind, dim])
            ties.append(f"{name} == {self.text(expected)}")

        for index, (input_sizes, steps) in enumerate(zip(sizes, strides, strict=True)):
            for dim, size in enumerate(input_sizes):
                if not isinstance(size, int) and (index, "size", dim) not in owned:
                    tie(index, "size", dim, size)
            if all(isinstance(step, int) for step in steps):
                continue
            is_packed = all(_equal(step, math.prod(input_sizes[dim + 1 :])) for dim, step in enumerate(steps))
            if is_packed and all(self._is_two_or_more(size) for size in input_sizes):
                contiguous.append(index)  # `is_contiguous` says nothing of the strides of dims of size 0 and 1
                continue
            for dim, step in enumerate(steps):
                if not isinstance(step, int) and (index, "stride", dim) not in owned:
                    tie(index, "stride", dim, step)
        return measures, contiguous, ties

    def _is_two_or_more(self, size: Any) -> bool:
        least = size if isinstance(size, int) else private_symbols.bounds_of(self._env, size)[0]
        return least is not None and least >= 2

    def conditions(self, owners: list[Owner]) -> list[str]:
        """Return ranges of the symbols and guards of the trace, which `TensorGuards` cannot see."""
        least = [f"{name} >= {self.bounds(name)[0]}" for name, *_ in owners]
        return list(dict.fromkeys([*least, *self.guards()]))

    def guards(self) -> list[str]:
        """Return the guards of the trace, and ranges beyond Dynamo's own least size of 2."""
        texts = []
        for name, *_ in self.owners():
            lower, upper = self.bounds(name)
            texts += [f"{name} >= {lower}"] if lower > 2 else []
            texts += [f"{name} <= {upper}"] if upper is not None and upper < 2**62 else []
        of_call = {*self._env.backed_var_to_val, *self._capture.unbacked}
        asserts = [item for group in self._env.deferred_runtime_asserts.values() for item in group]
        # The graph itself asserts what it is to be of a size that it computes.
        deferred = [item for item in asserts if item.expr.free_symbols <= of_call]
        numbers = set(self._capture.numbers.symbols)
        for guard in [*self._env.guards, *deferred]:
            if numbers & getattr(guard.expr, "free_symbols", set()):
                continue
            condition = self.simple(self._env.simplify(guard.expr))
            if condition not in (True, False) and getattr(condition, "free_symbols", None):
                texts.append(self.text(condition))
        for condition, text in self._capture.numbers.size_conditions:
            if text is None:
                cause = f"it decides on `{condition}`, which it computes from sizes with floats"
                raise CaptureError(self._capture.method, cause)
            texts.append(checked_expression(text))
        mixed = [self._mixed(condition) for condition in mixed_conditions(self._capture)]
        texts += [text for text in mixed if text != "True"]
        return list(dict.fromkeys(texts))

    def _mixed(self, condition: Any) -> str:
        """Return a condition on numbers and sizes together; it may state that a size equals a number."""
        names = {symbol: private_symbols.number_symbol(name) for symbol, name in self._capture.numbers.names.items()}
        sizes = {symbol: sympy_of(self.simple(symbol)) for symbol in condition.free_symbols if symbol not in names}
        condition = condition.xreplace({**names, **sizes})
        text = private_symbols.print_expression(condition)
        try:
            return checked_expression(text)
        except ValueError as error:
            raise CaptureError(self._capture.method, f"it assumes of a number and a size: {error}") from None


def sympy_of(size: Any) -> Any:
    """Return a size as a sympy object."""
    import sympy

    return sympy.sympify(size)


def _check_names(capture: Capture, names: set[str], texts: list[str]) -> None:
    """Refuse an expression over a value that no size or stride of an input gives: the storage offset of a view."""
    for text in texts:
        for name in re.findall(r"\b[sun]\d+\b", text):
            if name not in names:
                cause = (
                    f"it depends on {name}, which no size or stride of its inputs gives (the storage offset of a view)"
                )
                raise CaptureError(capture.method, f"{cause}: use dynamic=False or gears")


def _expressions(results: list[list[Any]]) -> list[str]:
    """Return the texts from which the sizes, strides and offsets of results are computed."""
    parts = [part for form in results for item in form for part in (item if isinstance(item, list) else [item])]
    return [str(part["expression"]) for part in parts if isinstance(part, dict) and "expression" in part]


def _equal(left: Any, right: Any) -> bool:
    return bool((left - right) == 0 or (not isinstance(left - right, int) and (left - right).expand() == 0))
