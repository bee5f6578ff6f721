"""Decide which tensors and ints of the process stay inputs of the graph.

The weights that are bound become attributes of the graph; every other tensor, also one found through the module, a
global or a closure, stays an input, so that replacing a tensor takes effect.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.variables import builder
from torch._dynamo.variables.builder import VariableBuilder
from torch.fx.experimental.symbolic_shapes import DimDynamic

from gearcache.ge_cache.private_torch.probe import Probes

probes = Probes()


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
    if type(value) is not int:
        return original(self, value, wrap_fn)
    if trace.numbers.wants(self.source, value):
        return self.wrap_symint(value, dynamism=DimDynamic.DYNAMIC)
    return original(self, value)


@probes.at_import(builder, "is_int_specialization_case")
def is_constant(trace: Any, original: Any, value: Any, source: Any) -> bool:
    """Leave the decision to `wrapped`."""
    return False
