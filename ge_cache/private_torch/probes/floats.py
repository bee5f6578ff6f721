"""Make each float of numbers, and each of sizes that may be rounded, a symbol of its own; report floats of both.

sympy computes with real numbers: it simplifies `n * 0.1 * 10` to `n`, and decides a branch on that without a guard. A
symbol of its own has no such history: `capture.computed` writes down how Python computes its value.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import torch
from torch._dynamo.source import ConstantSource
from torch.fx.experimental import sym_node
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import DimDynamic

from gearcache.ge_cache.capture.computed import ComputedFloats
from gearcache.ge_cache.private_torch.probe import Probes
from gearcache.ge_cache.private_torch.symbols import is_exact, is_faithful, is_number_source, number_sources

#: The files with the operations on symbolic numbers.
_OF_NUMBERS = frozenset({torch.__file__, sym_node.__file__})
probes = Probes()


@probes.at(torch.SymFloat, "__init__")
def made(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Give a float of numbers, or one of sizes that may be rounded, a symbol of its own; note a float of both."""
    original(self, *arguments, **keywords)
    node, computed = self.node, trace.state(ComputedFloats)
    expression = getattr(node, "_expr", None)
    if expression is not None and node.shape_env is not computed.shape_env:
        computed.begin(node.shape_env)
    if expression is None or expression in computed.of_sizes or _is_inside_operator():
        return
    if _is_number(expression, node.shape_env, computed) and computed.nodes.setdefault(expression, node) is node:
        return  # the number itself, and not `number + 0`, which is equal and may have a zero of another sign
    bases, is_of_numbers = set(), True
    if not expression.free_symbols:  # of numbers that sympy has cancelled: it is not known which
        bases |= {symbol for symbol, _ in number_sources(node.shape_env)}
    for symbol in expression.free_symbols:
        if symbol in computed.bases:
            bases |= computed.bases[symbol]
        elif _is_number(symbol, node.shape_env, computed):
            bases.add(symbol)
        else:
            is_of_numbers = False
    is_of_sizes = not is_of_numbers and not bases
    if is_of_sizes and is_exact(expression):
        return
    hint = node.hint if (is_of_numbers and bases) or is_of_sizes else None
    if hint is None or not math.isfinite(hint):
        for symbol in bases:
            trace.note("symbol of a float", symbol)
        return
    source = ConstantSource(f"computed_float_{len(computed.nodes)}")
    symbol = node.shape_env.create_unspecified_symbol(float(hint), source, DimDynamic.DYNAMIC)
    if is_of_sizes:
        computed.of_sizes[symbol] = expression
    else:
        computed.bases[symbol] = frozenset(bases)
        computed.operations[symbol] = expression
    self.node = computed.nodes[symbol] = SymNode(symbol, node.shape_env, float, float(hint), fx_node=node.fx_node)


@probes.at(torch.SymInt, "__init__")
def rounded(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Write an int that is rounded from a float of ints over these ints, if that is exact; note one of a size."""
    original(self, *arguments, **keywords)
    node, computed = self.node, trace.state(ComputedFloats)
    expression: Any = getattr(node, "_expr", None)
    if expression is None or node.shape_env is not computed.shape_env:
        return
    computed.rounded |= computed.of_sizes.keys() & expression.free_symbols
    floats = computed.operations.keys() & expression.free_symbols
    if not floats:
        return
    of_ints = expression.xreplace({symbol: _operation(symbol, computed) for symbol in floats})
    if is_faithful(of_ints) and all(symbol.is_integer for symbol in of_ints.free_symbols):
        self.node = SymNode(of_ints, node.shape_env, int, node.hint, fx_node=node.fx_node)


def _operation(symbol: Any, computed: ComputedFloats) -> Any:
    """Return the operation that made a float; in place of floats in it, what made those if it is not rounded."""
    operation = computed.operations[symbol]
    made = {each: _operation(each, computed) for each in operation.free_symbols & computed.operations.keys()}
    return operation.xreplace({each: parts for each, parts in made.items() if is_exact(parts)})


def _is_number(expression: Any, shape_env: Any, computed: ComputedFloats) -> bool:
    """Return whether an expression is the symbol of a number, or of a computed float."""
    if not expression.is_Symbol:
        return False
    sources = shape_env.var_to_sources.get(expression)
    return expression in computed.bases or (bool(sources) and is_number_source(sources[0]))


def _is_inside_operator() -> bool:
    """Return whether an operator is being tried on fake tensors: its internal numbers do not count.

    Dynamo tries a function of torch, and an operation on a number, by `run_node`.
    """
    frame = sys._getframe()
    while (outer := frame.f_back) is not None:
        if outer.f_code.co_name == "__torch_dispatch__":
            return True
        if outer.f_code.co_name == "run_node":
            return frame.f_code.co_filename not in _OF_NUMBERS
        frame = outer
    return False
