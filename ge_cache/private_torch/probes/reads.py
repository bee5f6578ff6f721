"""Dynamo hooks that report what a trace reads of tensors besides their values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from gearcache.ge_cache.capture.exchanged import exchanged, here
from gearcache.ge_cache.private_torch.probes.identities import watched_builtins
from gearcache.ge_cache.private_torch.renamed import name_here

#: Where Dynamo's tensor variable keeps facts that follow from sizes and strides: each question reads one of them.
_SIZE_FIELDS = ("_size", "stride", "is_contiguous")


@contextlib.contextmanager
def watched_reads(reads: Any) -> Iterator[None]:
    """Report to `dependencies.tensor_reads.TensorReads` what is read, and keep tensors with read sizes as graph inputs.

    Dynamo drops inputs that no operation of the graph uses, although the trace contains their sizes.
    """
    from torch._dynamo.output_graph import OutputGraph
    from torch._dynamo.variables.tensor import TensorVariable

    tensor: Any = TensorVariable
    graph: Any = OutputGraph

    def field(name: str) -> property:
        def read(self: Any) -> Any:
            reads.sizes(self.__dict__.get("source"))
            return self.__dict__[name]

        def write(self: Any, value: Any) -> None:
            self.__dict__[name] = value

        return property(read, write)

    attribute = name_here(tensor, "var_getattr")
    get, call = getattr(tensor, attribute), tensor.call_method
    prune = graph.remove_unused_graphargs

    def var_getattr(self: Any, tx: Any, name: str) -> Any:
        result = get(self, tx, name)
        if self.source is not None and hasattr(torch.Tensor, name):
            reads.attribute(self.source, name, *_constant(result))
        return result

    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        result = call(self, tx, name, args, kwargs)
        is_constant, value = _constant(result)
        if self.source is not None and is_constant and value is not None:
            reads.method_result(self.source, name, value)
        return result

    def builtin(function: Any, tx: Any, arguments: list[Any]) -> None:
        if not isinstance(arguments[0], TensorVariable) or arguments[0].source is None:
            return
        if function is isinstance:
            reads.instance(arguments[0].source, arguments[1].as_python_constant())
        elif len(arguments) == 1:
            reads.kind(arguments[0].source)

    def remove_unused_graphargs(self: Any) -> None:
        inputs = [node for node in self.placeholders if isinstance(node.meta["grapharg"].example, torch.Tensor)]
        kept_inputs = [node for node in inputs if node.users or reads.is_sized(node.meta["grapharg"].source)]
        user = self.graph.call_function(_keep, tuple(kept_inputs))
        prune(self)
        self.graph.erase_node(user)

    replacements = [
        *((tensor, name, field(name)) for name in _SIZE_FIELDS),
        (tensor, attribute, here(var_getattr, get)),
        (tensor, "call_method", here(call_method, call)),
        (graph, "remove_unused_graphargs", here(remove_unused_graphargs, prune)),
    ]
    with exchanged(replacements), watched_builtins({isinstance, type}, builtin):
        yield


def _keep(*_: Any) -> None:
    """A user of the inputs to keep, while unused ones are removed."""


def _constant(variable: Any) -> tuple[bool, Any]:
    if not variable.is_python_constant():
        return False, None
    return True, variable.as_python_constant()
