"""Make the plan by which calls between gears may be padded: recorded with symbolic sizes, proven, stored."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from gearcache.errors import GearSpecError
from gearcache.ge_cache.capture.captured import Capture
from gearcache.ge_cache.capture.symbols import Symbols
from gearcache.ge_cache.graphs.dynamic import SizePrinter, record_dynamic
from gearcache.ge_cache.graphs.static import GearGraph, input_specs, order_inputs, trace_gear
from gearcache.ge_cache.padding.proven import Unproven, prove_all, vouch_all
from gearcache.ge_cache.private_torch import symbols as private_symbols
from gearcache.guards.dispatch.fills import Fills


def padded_symbols(
    capture: Capture, symbols: Symbols, assignments: Iterable[Mapping[Any, int]], fills: Fills
) -> dict[Any, str]:
    """Return the symbols that may be padded, with the dim that names each; `GearSpecError` for a missing fill.

    `assignments` are the symbol values of the gears, which show the symbols that may vary.
    """
    rows = list(assignments)
    labels: dict[Any, str] = {}
    used_patterns: set[str] = set()
    for symbol in dict.fromkeys(symbol for assignment in rows for symbol in assignment):
        dims = [
            (item.access.text, dim)
            for item in capture.inputs
            for dim, size in enumerate(item.sizes)
            if symbol in symbols.symbols_of(size)
        ]
        filled = [place for place in dims if fills.pattern(*place) is not None]
        used_patterns.update(pattern for place in filled if (pattern := fills.pattern(*place)) is not None)
        if filled and len(filled) < len(dims):
            path, dim = next(place for place in dims if place not in filled)
            raise GearSpecError(
                f"`{capture.method}`: pad_values fills {_dim(*filled[0])}, and {_dim(path, dim)} has to follow it; "
                f"give a value for `{path}` too"
            )
        if filled:
            labels[symbol] = _dim(*dims[0])
    unused = [pattern for pattern in fills.patterns if pattern not in used_patterns]
    if unused or not labels:
        geared = ", ".join(
            _dim(item.access.text, dim)
            for item in capture.inputs
            for dim, size in enumerate(item.sizes)
            if any(symbol in assignment for assignment in rows for symbol in symbols.symbols_of(size))
        )
        if not geared:
            raise GearSpecError(
                f"`{capture.method}`: no call can be padded: the trace fixes every dim that differs between gears, as "
                "a branch on a size does; use on_miss='compile'"
            )
        raise GearSpecError(
            f"`{capture.method}`: pad_values names `{unused[0] if unused else ''}`, which has no dim that differs "
            f"between gears; such dims are {geared}"
        )
    return labels


def _dim(path: str, dim: int) -> str:
    return f"{path}.size({dim})"


def padding_plan(
    capture: Capture,
    lifted: fx.GraphModule,
    symbols: Symbols,
    decompositions: Mapping[Any, Any] | None,
    wanted: Mapping[Any, str],
    groups: Sequence[Sequence[Any]],
    fills: Fills,
) -> dict[str, Any]:
    """Return the plan (see `guards.dispatch.padded_call`); `GearSpecError` names the operator that prevents it.

    `groups`: symbols that are equal at every gear, which may be padded together.
    """
    graph, printer = record_dynamic(capture, lifted, symbols, decompositions)
    for symbol, label in wanted.items():
        value = symbols.simplify(symbol)
        if not symbols.symbols_of(value):
            raise GearSpecError(
                f"`{capture.method}`: {label} cannot be padded: an operator of the graph needs its value "
                f"({value} in the trace); use on_miss='compile', or pad inside the method with a mask"
            )
    _drop_numbers(graph)
    graph.inputs = input_specs(capture, {})
    order_inputs(graph)
    sizes = [item.sizes for item in capture.inputs]
    input_fills = [fills.given(item.access.text, item.dtype) for item in capture.inputs]
    if fills.is_vouched:
        outcome = vouch_all(graph.module.graph, symbols.simplify, wanted, groups)
    else:
        outcome = prove_all(graph.module.graph, sizes, symbols.simplify, wanted, groups, input_fills)
    if isinstance(outcome, Unproven):
        advice = "" if fills.is_vouched else ", filling='vouched' if you know that it does not"
        raise GearSpecError(
            f"`{capture.method}`: {outcome.label} cannot be padded, because the filling could reach the result: "
            f"{outcome.reason}; use on_miss='compile'{advice}, or pad inside the method with a mask"
        )
    (output,) = [node for node in graph.module.graph.nodes if node.op == "output"]
    outputs = [node.meta["val"] for node in output.args[0]]
    return {
        "symbols": [list(owner) for owner in printer.owners()],
        "padded": sorted(str(symbol) for symbol in wanted),
        "proofs": [
            {
                "symbols": sorted(str(symbol) for symbol in proof.symbols),
                "fills": [[index, value] for index, value in sorted(proof.fills.items())],
                "doubtful": proof.doubtful,
            }
            for proof in outcome
        ],
        "conditions": printer.guards(),
        "sizes": [[printer.plain(symbols.simplify(size)) for size in item.sizes] for item in capture.inputs],
        "strides": [[printer.plain(symbols.simplify(step)) for step in item.strides] for item in capture.inputs],
        "outputs": [_layout(tensor, printer) for tensor in outputs],
        "results": graph.results,
        "ones": [],
    }


def _drop_numbers(graph: GearGraph) -> None:
    """Remove the numbers of a graph that no operator uses: only results are computed from them."""
    for node in reversed(graph.module.graph.nodes):
        if isinstance(node.meta.get("val"), torch.SymInt) and not node.users:
            graph.module.graph.erase_node(node)
    graph.numbers = []


def _layout(tensor: torch.Tensor, printer: SizePrinter) -> list[list[Any]]:
    return [[printer.number(size) for size in tensor.shape], [printer.number(step) for step in tensor.stride()]]


def patterns_of_one(wanted: Mapping[Any, str], proofs: Sequence[Mapping[str, Any]]) -> Iterator[dict[Any, int]]:
    """Yield the sets of padded symbols that may have size 1 in a call: those of each proof, and all together."""
    for proof in proofs:
        yield {symbol: 1 for symbol in wanted if str(symbol) in proof["symbols"]}
    if len(proofs) > 1:
        yield dict.fromkeys(wanted, 1)


def equal_symbols(wanted: Mapping[Any, str], assignments: Iterable[Mapping[Any, int]]) -> list[list[Any]]:
    """Return the sets of padded symbols that name the same dim of several arguments and are equal at every gear."""
    rows = list(assignments)
    groups: dict[Any, list[Any]] = {}
    for symbol, label in wanted.items():
        groups.setdefault((label.rpartition(".size(")[2], *(gear.get(symbol) for gear in rows)), []).append(symbol)
    return [group for group in groups.values() if len(group) > 1]


def same_program(capture: Capture, other: Capture, symbols: Symbols, assignment: Mapping[Any, int]) -> bool:
    """Return whether a static trace runs the same operations as a symbolic one at these sizes.

    Dynamo assumes that a symbol is at least 2, without a guard, so a branch on `size == 1` leaves no trace in the
    symbolic one. Equal programs show that there is no such branch.
    """
    left, right = (_program(item, symbols, assignment) for item in (capture, other))
    if left != right or capture.frame_code.co_code != other.frame_code.co_code:
        return False
    checks = [{repr(check.to_plain()) for check in item.checks} for item in (capture, other)]
    # A served call has passed all checks of the symbolic trace, so these must include the other trace's checks.
    return checks[0] >= checks[1] and capture.frame_code.co_consts == other.frame_code.co_consts


def same_effects(
    capture: Capture, lifted: fx.GraphModule, decompositions: Mapping[Any, Any] | None, assignment: Mapping[Any, int]
) -> bool:
    """Return whether the graph at sizes of 1 writes and returns the same memory as at the sizes of the trace.

    More layouts are contiguous at a size of 1, where `contiguous` or `reshape` may give the tensor itself instead of a
    copy. That makes a difference where one is returned, or something is written. `CaptureError` where a graph cannot be
    recorded.
    """
    usual, at_one = (trace_gear(capture, lifted, decompositions, values) for values in ({}, assignment))
    return (
        usual.written_inputs == at_one.written_inputs
        and usual.written_attributes == at_one.written_attributes
        and [form[:2] for form in usual.results] == [form[:2] for form in at_one.results]
        and (_targets(usual) == _targets(at_one) or not any(map(_writes, _targets(usual))))
    )


def _targets(graph: GearGraph) -> list[Any]:
    return [node.target for node in graph.module.graph.nodes if node.op == "call_function"]


def _writes(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    return schema is not None and schema.is_mutable


def _is_of_number(capture: Capture, value: Any) -> bool:
    return isinstance(value, torch.SymInt) and bool(value.node.expr.free_symbols & set(capture.numbers.symbols))


def _program(capture: Capture, symbols: Symbols, assignment: Mapping[Any, int]) -> list[Any]:
    numbers: dict[fx.Node, Any] = {}
    count = itertools.count()
    lines: list[Any] = []
    inputs = {item.node_name: item.access for item in capture.inputs}

    def plain(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return numbers[value]
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, slice):
            return ["slice", plain(value.start), plain(value.stop), plain(value.step)]
        return value

    def concrete(value: Any) -> Any:
        if isinstance(value, (torch.SymBool, torch.SymFloat)):
            return object()  # equal to nothing: only sizes have a value at a gear
        return value if isinstance(value, (int, float)) else symbols.value(value.node.expr, assignment)

    for node in capture.module.graph.nodes:
        if node in capture.numbers.nodes:  # only results are computed from it
            numbers[node] = ("number", capture.numbers.nodes.index(node))
            continue
        value = node.meta.get("example_value")
        if node.op != "placeholder" and (_is_of_number(capture, value) or private_symbols.depends_on_values(value)):
            numbers[node] = ("computed", node.target, plain(list(node.args)), plain(dict(node.kwargs)))
            continue
        if isinstance(value, torch.Size):
            numbers[node] = [concrete(item) for item in value]
            continue
        if isinstance(value, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)) and node.op != "get_attr":
            numbers[node] = concrete(value)
            continue
        numbers[node] = ("node", next(count))
        if node.op == "placeholder":
            lines.append(["input", inputs[node.name]])
        elif node.op == "get_attr":
            lines.append(["attribute", capture.attributes.get(str(node.target), node.target)])
        else:
            lines.append([node.op, node.target, plain(list(node.args)), plain(dict(node.kwargs))])
    return lines
