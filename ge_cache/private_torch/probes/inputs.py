"""Keep the graphs that Dynamo begins, and decide which tensors, ints and floats of the process stay their inputs.

The weights that are bound become attributes of the graph; every other tensor, also one found through the module, a
global or a closure, stays an input, so that replacing a tensor takes effect.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.variables import builder
from torch._dynamo.variables.builder import GraphArg, VariableBuilder
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx.experimental.symbolic_shapes import DimDynamic, TrackedFake

from gearcache.ge_cache.private_torch.probe import Probes

probes = Probes()


@probes.at(OutputGraph, "__init__")
def begun(trace: Any, original: Any, self: Any, *arguments: Any, **keywords: Any) -> None:
    """Keep a graph, also one that an exception leaves unfinished: its weak references are dropped in the end.

    Dynamo takes the value of a tensor of one int64 or float64 for a number of the call (`item_memo`, torch 2.13), and
    guards what the method makes of it. Here such a value is one that the graph computes, as any other of a tensor.
    """
    trace.graphs.append(self)
    original(self, *arguments, **keywords)
    self.tracing_context.fake_mode.fake_tensor_converter.export = True


@probes.at_import(builder, "is_from_global_source", "is_from_nonlocal_source")
def is_elsewhere(trace: Any, original: Any, source: Any) -> bool:
    """Treat a tensor of a global or a closure as any other."""
    return False


@probes.at_import(builder, "is_from_unspecialized_nn_module_source")
def is_weight(trace: Any, original: Any, source: Any) -> bool:
    """Return whether a tensor of a module becomes an attribute of the graph."""
    return bool(original(source)) and trace.weights.are_bound(source)


@probes.at_import(builder, "tensor_always_has_static_shape")
def has_one_shape(trace: Any, original: Any, tensor: Any, is_tensor: bool, tensor_source: Any) -> Any:
    """Let a buffer grow that the method replaces: Dynamo treats all buffers as static."""
    if is_tensor and trace.weights.are_replaced(tensor_source) and type(tensor) is not torch.nn.Parameter:
        return False, None
    return original(tensor, is_tensor, tensor_source)


@probes.at(VariableBuilder, "_wrap_lazy_constant")
def wrapped(trace: Any, original: Any, self: Any, value: Any, wrap_fn: Any = None) -> Any:
    """Decide which ints become symbols; Dynamo keeps `wrap_literal`, which does so for it, in a table for good."""
    if type(value) is float and trace.numbers.wants(self.source, value):
        return _wrap_float(self, value)
    if type(value) is not int:
        return original(self, value, wrap_fn)
    if trace.numbers.wants(self.source, value):
        return self.wrap_symint(value, dynamism=DimDynamic.DYNAMIC)
    return original(self, value)


def _wrap_float(self: Any, value: float) -> Any:
    """Make a float an input of the graph, as `wrap_symint` does with an int: Dynamo would pass it as a tensor."""
    output, source = self.tx.output, self.get_source()
    if self.name in output.unspec_variable_map:
        return output.unspec_variable_map[self.name]
    symbol = output.shape_env.create_unspecified_symbol(value, self.source, DimDynamic.DYNAMIC)
    number = output.shape_env.create_symfloatnode(symbol, hint=value, source=self.source)
    output.tracked_fakes.append(TrackedFake(number, self.source, None))
    install_guard(source.make_guard(GuardBuilder.TYPE_MATCH))
    name = re.sub(r"[^a-zA-Z0-9]+", "_", self.name)
    proxy = output.root_tracer.create_graph_input(name, type(number), number, source=source)
    output.root_tracer.bound_symbols[symbol] = proxy
    variable = SymNodeVariable.create(self.tx, proxy, number, source=source)
    output.unspec_variable_map[self.name] = variable
    proxy.node.meta["grapharg"] = GraphArg(
        source, number, pass_arg_as_tensor=False, fake_tensor=None, is_tensor=False, example_strong_ref=number
    )
    return variable


@probes.at_import(builder, "is_int_specialization_case")
def is_constant(trace: Any, original: Any, value: Any, source: Any) -> bool:
    """Leave the decision to `wrapped`."""
    return False
