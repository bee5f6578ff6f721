"""One graph with dynamic dims, for methods without gears."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from gearcache.errors import CaptureError
from gearcache.ge_cache import _compat
from gearcache.ge_cache.capture import Capture
from gearcache.ge_cache.specialise import GearGraph, record
from gearcache.ge_cache.symbols import Symbols
from gearcache.ge_cache.tensor_spec import TensorSpec
from gearcache.guards.expressions import checked_expression
from gearcache.guards.variant import StoredGear


def dynamic_gear(
    capture: Capture, lifted: fx.GraphModule, symbols: Symbols, decompositions: Mapping[Any, Any] | None
) -> tuple[GearGraph, StoredGear]:
    """Record the graph with its sizes symbolic; what must hold among them becomes conditions of the call."""
    placeholders = [node for node in capture.module.graph.nodes if node.op == "placeholder"]
    fakes = [node.meta["example_value"] for node in placeholders]
    mode = fakes[0].fake_mode
    attributes = {
        name: mode.from_tensor(tensor.detach(), static_shapes=True) for name, tensor in _lifted(capture).items()
    }
    printer = _Printer(capture, symbols)
    with mode.shape_env.ignore_fresh_unbacked_symbols():
        graph = record(capture.method, lifted, mode, fakes, attributes, decompositions, printer.number)
    owners = printer.owners()
    graph.inputs = [
        TensorSpec(
            tuple(symbols.value(size, {}) for size in item.sizes),
            tuple(symbols.value(stride, {}) for stride in item.strides),
            item.dtype,
            item.device,
        )
        for item in capture.inputs
    ]
    graph.attributes = {
        name: TensorSpec(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device)
        for name, tensor in _lifted(capture).items()
    }
    sizes = [[symbols.simplify(size) for size in item.sizes] for item in capture.inputs]
    strides = [[symbols.simplify(stride) for stride in item.strides] for item in capture.inputs]
    conditions = printer.conditions(sizes, strides, owners)
    graph.symbols = {
        "sizes": [[printer.plain(size) for size in row] for row in sizes],
        "strides": [[printer.plain(stride) for stride in row] for row in strides],
        "hints": [[name, printer.hint(name)] for name, _, _ in owners],
    }
    stored = StoredGear(
        text="dynamic",
        sizes=[[size if isinstance(size, int) else None for size in row] for row in sizes],
        strides=[[stride if isinstance(stride, int) else None for stride in row] for row in strides],
        results=graph.results,
        header={},
        blobs={},
        written=graph.written_inputs,
        symbols=[list(owner) for owner in owners],
        conditions=conditions,
    )
    return graph, stored


def _lifted(capture: Capture) -> dict[str, torch.Tensor]:
    return {name: capture.attribute_tensors[name] for name in capture.attributes}


class _Printer:
    """Prints sizes as expressions over the symbols' names."""

    def __init__(self, capture: Capture, symbols: Symbols) -> None:
        self._capture = capture
        self._symbols = symbols
        self._env = capture.shape_env

    def text(self, expression: Any) -> str:
        """Return Python source; `CaptureError` when the expression is not simple arithmetic."""
        text = _compat.print_expression(expression)
        try:
            return checked_expression(text)
        except ValueError as error:
            raise CaptureError(self._capture.method, f"a size of its graph is too complex: {error}") from None

    def plain(self, size: Any) -> Any:
        return size if isinstance(size, int) else {"expression": self.text(size)}

    def number(self, value: Any) -> Any:
        """Return an int, or an expression over the symbols."""
        if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
            return self.plain(self._symbols.simplify(value.node.expr))
        return value

    def owners(self) -> list[tuple[str, int, int]]:
        """Return for each free symbol the first input dim that is just that symbol."""
        found: dict[str, tuple[str, int, int]] = {}
        needed: set[Any] = set()
        for index, item in enumerate(self._capture.inputs):
            for dim, size in enumerate(item.sizes):
                simple = self._symbols.simplify(size)
                if isinstance(simple, int):
                    continue
                needed |= set(simple.free_symbols)
                if simple.is_Symbol:
                    found.setdefault(str(simple), (str(simple), index, dim))
        missing = sorted(str(symbol) for symbol in needed if str(symbol) not in found)
        if missing:
            raise CaptureError(self._capture.method, f"no input dim gives the size {missing[0]} by itself")
        return [found[name] for name in sorted(found)]

    def hint(self, name: str) -> int:
        """Return a symbol's value in the traced call."""
        return self._symbols.hint(next(item for item in self._env.var_to_range if str(item) == name))

    def bounds(self, name: str) -> tuple[int, int | None]:
        """Return the least and the greatest value of a symbol (None: no bound)."""
        symbol = next(item for item in self._env.var_to_range if str(item) == name)
        bounds = self._env.var_to_range[symbol]
        upper = int(bounds.upper) if bounds.upper.is_Integer else None
        return int(bounds.lower), upper

    def conditions(self, sizes: Any, strides: Any, owners: list[tuple[str, int, int]]) -> list[str]:
        """Return what `TensorGuards` cannot see: ranges, equal dims, guards of the trace."""
        found = []
        for name, _, _ in owners:
            lower, upper = self.bounds(name)
            found.append(
                f"{name} >= {lower}" + (f" and {name} <= {upper}" if upper is not None and upper < 2**62 else "")
            )
        deferred = [item for group in self._env.deferred_runtime_asserts.values() for item in group]
        for guard in [*self._env.guards, *deferred]:
            condition = self._env.simplify(self._env.replace(guard.expr))
            if condition not in (True, False) and getattr(condition, "free_symbols", None):
                found.append(self.text(condition))
        return list(dict.fromkeys(found))
