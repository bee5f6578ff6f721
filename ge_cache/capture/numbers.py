"""Numbers: ints and floats that a trace keeps symbolic, so that one graph serves all their values.

A number is an input of the graph, as a tensor is: the frame passes it after the tensors. Slices, `arange(n)`, sizes and
operands may depend on an int, operands on a float; conditions that the trace evaluated on one (`n > 3`,
`n <= x.size(1)`) are checked on every call, see `ge_cache.capture.number_checks`. A number whose value the trace needs
(`range(n)`, an index of a list) is a constant of the graph. A float that the method computes from numbers is an input
too, see `ge_cache.capture.computed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from msgspec import Struct, field
from torch import fx

from gearcache.ge_cache.capture.computed import (
    LONGEST,
    ComputedFloat,
    ComputedFloats,
    number_names,
    number_texts,
    passed_float,
)
from gearcache.ge_cache.capture.number_choice import NumberRefused
from gearcache.ge_cache.capture.written import Written
from gearcache.ge_cache.private_torch import symbols as private_symbols
from gearcache.guards.access import Access
from gearcache.guards.evidence.checks import Check
from gearcache.guards.gears.expressions import FINITE


class Numbers(Struct):
    """The ints and floats of one capture that were chosen as numbers."""

    #: Symbol -> Dynamo's source, of the ints that stayed symbolic; and of the floats.
    symbols: dict[Any, Any] = field(default_factory=dict)
    floats: dict[Any, Any] = field(default_factory=dict)
    #: Symbol -> name in stored expressions: `n0` is an int, `f0` a float.
    names: dict[Any, str] = field(default_factory=dict)
    float_names: dict[Any, str] = field(default_factory=dict)
    #: The symbols of the ints that the frame passes, in order, with their placeholders; behind them the floats.
    passed: list[Any] = field(default_factory=list)
    nodes: list[fx.Node] = field(default_factory=list)
    passed_floats: list[Any] = field(default_factory=list)
    float_nodes: list[fx.Node] = field(default_factory=list)
    #: The floats that the graph takes although the frame does not have them.
    computed: list[ComputedFloat] = field(default_factory=list)
    #: Symbol -> source over names, of floats that conditions of the trace may name.
    texts: dict[Any, str] = field(default_factory=dict)
    #: Assumptions about the ints that call checks compare.
    checked: set[Any] = field(default_factory=set)
    #: Sources of ints and floats whose value the trace needed, and the line that needed it, in words.
    fixed: dict[Any, str] = field(default_factory=dict)
    #: Conditions of the trace on floats, as source over names; also that each is finite, as sympy supposes.
    float_conditions: list[str] = field(default_factory=list)
    #: Conditions of the trace on floats that it computed from sizes, as torch has them, and as source over the symbols
    #: of the sizes; None where sympy may not compute as Python does.
    size_conditions: list[tuple[Any, str | None]] = field(default_factory=list)
    #: Whether it rounded what it added or multiplied of such floats: sympy may join these for the sizes of results.
    joins_floats: bool = False
    #: Why some of its symbols cannot be numbers, as far as the graph shows.
    refusals: list[tuple[str, frozenset[Any]]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.symbols or self.floats)

    @property
    def sources(self) -> dict[Any, Any]:
        """Dynamo's source of each number, by symbol."""
        return {**self.symbols, **self.floats}

    @property
    def inputs(self) -> list[tuple[Any, str]]:
        """Symbol and name of what the frame passes, in order."""
        ints = [(symbol, self.names[symbol]) for symbol in self.passed]
        return ints + [(symbol, self.float_names[symbol]) for symbol in self.passed_floats]

    @property
    def graph_floats(self) -> dict[fx.Node, frozenset[Any]]:
        """The nodes of the captured graph for the floats that it takes, with the numbers that these depend on."""
        given = zip(self.float_nodes, (frozenset({symbol}) for symbol in self.passed_floats), strict=True)
        return {**dict(given), **{each.node: each.bases for each in self.computed}}


def take_numbers(graph: fx.Graph, shape_env: Any, computed: ComputedFloats) -> Numbers:
    """Return the numbers of a captured graph; moves their placeholders to the end, and removes those of fixed ones."""
    numbers = Numbers()
    for symbol, source in private_symbols.number_sources(shape_env):
        if private_symbols.is_fixed(shape_env, symbol):
            numbers.fixed[source] = private_symbols.line_that_fixed(shape_env, symbol)
            numbers.texts[symbol] = f"({private_symbols.traced_value(shape_env, symbol)!r})"
        elif symbol.is_integer:
            numbers.symbols[symbol] = source
            numbers.names[symbol] = f"n{len(numbers.names)}"
        else:
            numbers.floats[symbol] = source
            numbers.float_names[symbol] = f"f{len(numbers.float_names)}"
    for node in graph.find_nodes(op="placeholder"):
        symbol = _symbol_of(node)
        if symbol in numbers.symbols:
            numbers.passed.append(symbol)
            numbers.nodes.append(node)
        elif symbol in numbers.floats:
            numbers.passed_floats.append(symbol)
            numbers.float_nodes.append(node)
        elif symbol is not None and private_symbols.is_fixed(shape_env, symbol):
            _put(node, node.meta["example_value"].node.hint)  # not sympy's value, whose zero has no sign
            graph.erase_node(node)
    placeholders = graph.find_nodes(op="placeholder")
    last = placeholders[-1] if placeholders else None
    for node in (*numbers.nodes, *numbers.float_nodes):  # in the order of `inputs`
        if last is not None and node is not last:
            last.append(node)
        last = node
    _take_computed(graph, numbers, computed, shape_env)
    known = _texts_of_sizes(graph, shape_env) if computed.of_sizes else {}
    _take_conditions(numbers, computed, shape_env, known)
    return numbers


def _texts_of_sizes(graph: fx.Graph, shape_env: Any) -> dict[Any, str]:
    """Return how Python computes the floats of a graph from sizes, by symbol."""
    sizes = private_symbols.size_texts(shape_env)
    placeholders = [(node, node.meta["example_value"]) for node in graph.find_nodes(op="placeholder")]
    named = {
        node: sizes[value.node._expr]
        for node, value in placeholders
        if isinstance(value, torch.SymInt) and value.node._expr in sizes
    }
    texts = number_texts(graph, named)
    return {
        node.meta["example_value"].node._expr: text
        for node, text in texts.items()
        if isinstance(node.meta["example_value"], torch.SymFloat)
    }


def _take_computed(graph: fx.Graph, numbers: Numbers, computed: ComputedFloats, shape_env: Any) -> None:
    """Make floats that the graph computes from numbers inputs of it, where an operator or the frame takes them."""
    named = dict(zip((*numbers.nodes, *numbers.float_nodes), (name for _, name in numbers.inputs), strict=True))
    texts = number_texts(graph, named)
    numbers.texts |= numbers.float_names
    for node in list(graph.nodes):
        value = node.meta.get("example_value")
        is_number = isinstance(value, (torch.SymFloat, torch.SymInt, torch.SymBool))
        symbols = value.node._expr.free_symbols if is_number else set()
        users = [user for user in node.users if not (user in texts or _is_condition(user) or _is_of_ints(user))]
        is_decided = isinstance(value, torch.SymBool) and not users
        if node.op == "placeholder" or is_decided or not symbols & {*computed.bases, *numbers.floats}:
            continue
        bases = frozenset().union(*(computed.bases.get(symbol, {symbol}) for symbol in symbols))
        if not bases & numbers.sources.keys() or (node in texts and not number_names(texts[node])):
            _put(node, value.node.hint)  # it is computed from constants
            if node in texts:
                numbers.texts |= dict.fromkeys(symbols, texts[node])
            continue
        is_float = isinstance(value, torch.SymFloat) and node in texts
        if not is_float or private_symbols.is_replaced(shape_env, symbols):
            numbers.refusals.append((f"it computes `{_operation(node)}` of a number", bases))
            continue
        (symbol,) = symbols
        numbers.texts[symbol] = texts[node]
        if users:
            name = f"f{len(numbers.float_names) + len(numbers.computed)}"
            with graph.inserting_before(node):
                passed = graph.call_function(passed_float, (texts[node],))
            passed.meta["example_value"] = value
            for user in users:
                user.replace_input_with(node, passed)
            numbers.computed.append(ComputedFloat(name, texts[node], bases, passed))
    for node in reversed(graph.nodes):
        if not node.users and (_is_condition(node) or node in texts) and node.op != "placeholder":
            graph.erase_node(node)


def _take_conditions(numbers: Numbers, computed: ComputedFloats, shape_env: Any, known: Mapping[Any, str]) -> None:
    """Take the conditions on floats out of a trace; nothing else knows symbols of floats.

    `known` are the floats that the graph computes from sizes.
    """
    texts = {**numbers.texts, **numbers.names}
    numbers.float_conditions += map(FINITE.format, numbers.float_names.values())
    for made, operation in computed.operations.items():  # Dynamo drops what only its branches need
        text = texts.get(made) or private_symbols.operation_text(operation, texts)
        bases = computed.bases[made]
        if text is None or len(text) > LONGEST:
            numbers.refusals.append((f"it computes `{type(operation).__name__}` of a number", bases))
        elif number_names(text):
            texts[made] = text
            numbers.float_conditions.append(FINITE.format(text))  # the operation may also raise an exception
    of_sizes = computed.of_sizes
    sizes = private_symbols.size_texts(shape_env, of_sizes, known) if of_sizes else {}
    numbers.joins_floats = any(_is_joined(symbol, of_sizes) for symbol in computed.rounded)
    for condition in private_symbols.take_float_conditions(shape_env):
        bases = frozenset().union(*(computed.bases.get(symbol, {symbol}) for symbol in condition.free_symbols))
        if of_sizes.keys() & condition.free_symbols:
            numbers.size_conditions.append((condition, private_symbols.comparison_text(condition, sizes)))
            numbers.refusals.append((f"it decides on `{condition}` of a number and a size", bases))
            continue
        if not bases & numbers.sources.keys():
            continue  # about constants
        text = private_symbols.comparison_text(condition, texts)
        if text is None:
            numbers.refusals.append((f"it decides on `{condition}` of a number", bases))
        else:
            numbers.float_conditions.append(text)
            # Python compares an int with a float as it is, torch makes it a float first.
            converted = [
                each for each in condition.free_symbols if private_symbols.is_conversion(computed.operations.get(each))
            ]
            numbers.float_conditions += [f"(abs({texts[each]}) < {2**53})" for each in converted]
    for symbol in numbers.floats:
        if private_symbols.is_replaced(shape_env, [symbol]):
            numbers.refusals.append(("it equals another number", frozenset({symbol})))
    for symbol in numbers.symbols:
        if private_symbols.equals_float(shape_env, symbol):
            numbers.refusals.append(("it equals a float", frozenset({symbol})))


def _is_joined(symbol: Any, operations: Mapping[Any, Any]) -> bool:
    """Return whether a float was made by a sum or a product of floats."""
    operation = operations[symbol]
    parts = operations.keys() & operation.free_symbols
    is_joined = bool(parts) and (operation.is_Add or operation.is_Mul)
    return is_joined or any(_is_joined(part, operations) for part in parts)


def _is_condition(node: fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), torch.SymBool) and node.op == "call_function"


def _is_of_ints(node: fx.Node) -> bool:
    """Return whether a node is an int that does not depend on the value of a float."""
    value = node.meta.get("example_value")
    return isinstance(value, torch.SymInt) and all(symbol.is_integer for symbol in value.node._expr.free_symbols)


def _operation(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target)).removeprefix("_sym_").removeprefix("sym_")


def name_by_passed(numbers: Numbers, shape_env: Any) -> None:
    """Rename numbers that equal a number passed by the frame to that one: a graph knows no others."""
    for symbol in numbers.symbols:
        if symbol not in numbers.passed:
            equal = (other for other in numbers.passed if shape_env.replace(other) == shape_env.replace(symbol))
            numbers.names[symbol] = next((numbers.names[other] for other in equal), numbers.names[symbol])


def _symbol_of(node: fx.Node) -> Any:
    """Return the symbol of a placeholder for an int or a float; None for any other."""
    value = node.meta.get("example_value")
    if not isinstance(value, (torch.SymInt, torch.SymFloat)) or not private_symbols.is_number_source(
        node.meta["grapharg"].source
    ):
        return None
    return value.node._expr if value.node._expr.is_Symbol else value.node.expr


def _put(node: fx.Node, value: float) -> None:
    """Replace a node by a number in all its uses."""
    for user in list(node.users):
        user.args = fx.node.map_arg(user.args, lambda used: value if used is node else used)
        user.kwargs = fx.node.map_arg(user.kwargs, lambda used: value if used is node else used)


def written_ints(checks: list[Check], written: Written) -> list[Access]:
    """Return the paths of ints and floats that the trace fixed and the frame writes (`self.count += 1`)."""
    return [check.access for check in checks if check.number_type and written.leads_to(check.access)]


def check_takes(graph: fx.Graph, method: str) -> None:
    """Raise `CaptureError` where an operator of a captured graph takes a number, or a value computed from one."""
    computed: set[fx.Node] = set()
    for node in graph.nodes:
        value = node.meta.get("example_value")
        if node.op == "placeholder" and isinstance(value, torch.SymInt):
            computed.add(node)
        elif computed.intersection(node.all_input_nodes) and node.op != "output":
            if not isinstance(value, (torch.SymInt, torch.SymBool)):
                raise NumberRefused(method, f"`{node.target}` takes a number")
            computed.add(node)
