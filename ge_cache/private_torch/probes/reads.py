"""Report what a trace reads of tensors besides their values, and of autograd; keep tensors with read sizes as inputs.

Dynamo drops inputs that no operation of the graph uses, although the trace contains their sizes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.variables.ctx_manager import GradModeVariable
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

from gearcache.ge_cache.private_torch.probe import Probes

#: Where Dynamo's tensor variable keeps facts that follow from sizes and strides: each question reads one of them.
_SIZE_FIELDS = ("_size", "stride", "is_contiguous")
probes = Probes()


@probes.at_field(TensorVariable, *_SIZE_FIELDS)
def read_size(trace: Any, self: Any) -> None:
    """Note a tensor whose sizes or strides matter."""
    trace.reads.sizes(self.__dict__.get("source"))


@probes.at(TensorVariable, "var_getattr")
def read_attribute(trace: Any, original: Any, self: Any, tx: Any, name: str) -> Any:
    """Note an attribute of a tensor from before the call, with its value if that is a constant, or of a result."""
    variable = original(self, tx, name)
    if self.source is not None:
        if hasattr(torch.Tensor, name):
            trace.reads.attribute(self.source, name, *_constant(variable))
    elif name in trace.autograd.PROPERTIES and variable.is_python_constant():
        trace.autograd.of_result(name, variable.as_python_constant())
    return variable


@probes.at(TensorVariable, "call_method")
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Note a tensor of which the trace asks for a gradient, and the result of a method that is a constant."""
    if name == "requires_grad_" and self.source is not None:
        trace.autograd.of_tensor(self.source)
    result = original(self, tx, name, args, kwargs)
    is_constant, value = _constant(result)
    if self.source is not None and is_constant and value is not None:
        trace.reads.method_result(self.source, name, value)
    return result


@probes.at(TorchInGraphFunctionVariable, "call_function")
def called_function(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Note reads and changes of grad mode."""
    if self.value in (torch.is_grad_enabled, torch._C._set_grad_enabled):
        trace.autograd.of_mode()
    return original(self, tx, args, kwargs)


@probes.at(GradModeVariable, "create")
def made_mode(trace: Any, original: Any, tx: Any, target_value: Any, initialized: bool = False, **keywords: Any) -> Any:
    """Note `torch.set_grad_enabled`, which may be called without a `with`."""
    if initialized:
        trace.autograd.of_mode()
    return original(tx, target_value, initialized, **keywords)


@probes.at(OutputGraph, "remove_unused_graphargs")
def removed_inputs(trace: Any, original: Any, self: Any) -> None:
    """Keep tensors whose sizes were read."""
    inputs = [node for node in self.placeholders if isinstance(node.meta["grapharg"].example, torch.Tensor)]
    kept_inputs = [node for node in inputs if node.users or trace.reads.is_sized(node.meta["grapharg"].source)]
    user = self.graph.call_function(_keep, tuple(kept_inputs))
    original(self)
    self.graph.erase_node(user)


def _keep(*_: Any) -> None:
    """A user of the inputs to keep, while unused ones are removed."""


def _constant(variable: Any) -> tuple[bool, Any]:
    if not variable.is_python_constant():
        return False, None
    return True, variable.as_python_constant()
