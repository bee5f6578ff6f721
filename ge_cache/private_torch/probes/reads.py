"""Report what a trace reads of tensors besides their values, and keep tensors with read sizes as inputs of the graph.

Dynamo drops inputs that no operation of the graph uses, although the trace contains their sizes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.variables.tensor import TensorVariable

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
    """Note an attribute, with its value if that is a constant."""
    result = original(self, tx, name)
    if self.source is not None and hasattr(torch.Tensor, name):
        trace.reads.attribute(self.source, name, *_constant(result))
    return result


@probes.at(TensorVariable, "call_method")
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Note the result of a method that is a constant."""
    result = original(self, tx, name, args, kwargs)
    is_constant, value = _constant(result)
    if self.source is not None and is_constant and value is not None:
        trace.reads.method_result(self.source, name, value)
    return result


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
