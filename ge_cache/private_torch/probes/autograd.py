"""Dynamo hooks that report what a trace reads and changes of autograd; each private name has a test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from gearcache.ge_cache.capture.exchanged import exchanged, here
from gearcache.ge_cache.private_torch.renamed import name_here


@contextlib.contextmanager
def watched_autograd(reads: Any) -> Iterator[None]:
    """Report to `reads` (`AutogradReads`) when Dynamo answers a question about autograd."""
    from torch._dynamo.variables.ctx_manager import GradModeVariable
    from torch._dynamo.variables.tensor import TensorVariable
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

    tensor: Any = TensorVariable
    function: Any = TorchInGraphFunctionVariable
    grad_mode: Any = GradModeVariable
    attribute = name_here(tensor, "var_getattr")
    read, call_of_tensor, call, create = (
        getattr(tensor, attribute),
        tensor.call_method,
        function.call_function,
        grad_mode.create,
    )

    def var_getattr(self: Any, tx: Any, name: str) -> Any:
        variable = read(self, tx, name)
        if self.source is None and name in reads.PROPERTIES and variable.is_python_constant():
            reads.of_result(name, variable.as_python_constant())
        return variable

    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name == "requires_grad_" and self.source is not None:
            reads.of_tensor(self.source)
        return call_of_tensor(self, tx, name, args, kwargs)

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.value in (torch.is_grad_enabled, torch._C._set_grad_enabled):
            reads.of_mode()
        return call(self, tx, args, kwargs)

    def create_grad_mode(tx: Any, target_value: Any, initialized: bool = False, **kwargs: Any) -> Any:
        if initialized:  # `torch.set_grad_enabled`, which may be called without a `with`
            reads.of_mode()
        return create(tx, target_value, initialized, **kwargs)

    replacements = [
        (tensor, attribute, here(var_getattr, read)),
        (tensor, "call_method", here(call_method, call_of_tensor)),
        (function, "call_function", here(call_function, call)),
        (grad_mode, "create", staticmethod(here(create_grad_mode, create))),
    ]
    with exchanged(replacements):
        yield


def is_grad_switch(node: torch.fx.Node) -> bool:
    """Return whether a captured node only turns autograd on or off, which has no effect in a graph without it."""
    return node.target in (torch._C._set_grad_enabled, torch.set_grad_enabled) and not node.users


def enters_inference_mode(node: torch.fx.Node) -> bool:
    """Whether a captured node begins a region of inference mode, on or off by its argument."""
    return node.target is torch.autograd.grad_mode._enter_inference_mode


def leaves_inference_mode(node: torch.fx.Node) -> bool:
    """Return whether a captured node ends the innermost region."""
    return node.target is torch.autograd.grad_mode._exit_inference_mode
