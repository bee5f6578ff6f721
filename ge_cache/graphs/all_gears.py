"""One graph for all gears, for a backend that switches between them itself (GE with `ge.dynamicDims`).

Only dims that differ between the gears are symbolic; every other size is a number, as GE wants it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.captured import Capture
from gearcache.ge_cache.graphs.examples import numbers
from gearcache.ge_cache.graphs.plan import PlannedGear
from gearcache.ge_cache.graphs.static import GearGraph, attribute_inputs, input_specs, record
from gearcache.ge_cache.private_torch import symbols as private_symbols
from gearcache.guards.gears.expressions import expression_function


def all_gears_graph(
    capture: Capture,
    lifted: fx.GraphModule,
    gears: list[PlannedGear],
    decompositions: Mapping[Any, Any] | None,
) -> GearGraph:
    """Record a graph with symbols for the dims that gears change; `symbols["gears"]` has each gear's values.

    `CaptureError` when an assumption of the graph about the sizes fails at some gear.
    """
    symbols = capture.symbols()
    changing = [symbol for symbol in gears[0].assignment if len({gear.assignment.get(symbol) for gear in gears}) > 1]
    names = {symbol: f"s{number}" for number, symbol in enumerate(changing)}
    renamed = {symbol: private_symbols.size_symbol(name) for symbol, name in names.items()}
    symbolic = private_symbols.SymbolicInputs({name: symbols.hint(symbol) for symbol, name in names.items()})

    def plain(size: Any) -> Any:
        simple = symbols.simplify(size)
        if isinstance(simple, int):
            return simple
        fixed = {symbol: gears[0].assignment.get(symbol, symbols.hint(symbol)) for symbol in simple.free_symbols}
        printed = private_symbols.print_expression(simple.subs(fixed | renamed, simultaneous=True))
        return int(printed) if printed.isdigit() else {"expression": printed}

    sizes = [[plain(size) for size in item.sizes] for item in capture.inputs]
    strides = [[plain(stride) for stride in item.strides] for item in capture.inputs]
    fakes = [
        symbolic.tensor(numbers(size, symbolic), numbers(stride, symbolic), item.dtype, item.device)
        for item, size, stride in zip(capture.inputs, sizes, strides, strict=True)
    ]
    attributes, specs = attribute_inputs(capture, symbolic.mode)
    graph = record(capture, lifted, symbolic.mode, fakes, attributes, decompositions, str)
    values = [[gear.assignment[symbol] for symbol in changing] for gear in gears]
    check_assumptions(capture.method, symbolic.assumptions(), list(names.values()), values)
    graph.inputs, graph.attributes = input_specs(capture, {}), specs
    hints = [[name, symbols.hint(symbol)] for symbol, name in names.items()]
    graph.symbols = {"sizes": sizes, "strides": strides, "hints": hints, "gears": values}
    return graph


def check_assumptions(method: str, conditions: list[str], names: list[str], gears: list[list[int]]) -> None:
    """Raise `CaptureError` when a condition does not hold at some gear."""
    for text in conditions:
        holds = expression_function(text, tuple(names))
        for values in gears:
            if not holds(**dict(zip(names, values, strict=True)), max=max, min=min):
                raise CaptureError(
                    method,
                    f"one graph cannot serve all gears: it assumes `{text}`, which is not so at "
                    f"{dict(zip(names, values, strict=True))}; use gear_execution='static'",
                )


def gear_values(symbols: Mapping[str, Any], row: list[Any]) -> list[list[int] | None]:
    """Return for each dim its size at every gear, or None for a dim with one size at all gears."""
    names = tuple(name for name, _ in symbols["hints"])
    per_dim: list[list[int] | None] = []
    for size in row:
        if isinstance(size, int):
            per_dim.append(None)
            continue
        value = expression_function(size["expression"], names)
        per_dim.append(
            [int(value(**dict(zip(names, gear, strict=True)), max=max, min=min)) for gear in symbols["gears"]]
        )
    return per_dim
