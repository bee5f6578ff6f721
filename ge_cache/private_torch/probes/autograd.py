"""Report what a trace reads and changes of autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.variables.ctx_manager import GradModeVariable
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

from gearcache.ge_cache.private_torch.probe import Probes

#: Properties that are read of tensors, and the answers where nothing is recorded.
_UNRECORDED = {"requires_grad": False, "grad_fn": None, "is_leaf": True, "retains_grad": False}
_RECORDS_NOTHING = "and a cached call records nothing; leave enable_grad() out of it"
probes = Probes()


@probes.at(TensorVariable, "var_getattr")
def read_attribute(trace: Any, original: Any, self: Any, tx: Any, name: str) -> Any:
    """Note what the trace reads of a result."""
    variable = original(self, tx, name)
    if self.source is None and name in _UNRECORDED and variable.is_python_constant():
        trace.note("grad mode")
        trace.note("result asked")
        if variable.as_python_constant() != _UNRECORDED[name]:
            if not trace.with_grad:
                cause = f"it reads `{name}` of a tensor that it made under torch.enable_grad(), {_RECORDS_NOTHING}"
                trace.refuse(cause, at_once=True)
            trace.note("result recorded")
    return variable


@probes.at(TensorVariable, "call_method")
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Note a tensor of which the trace asks for a gradient."""
    if name == "requires_grad_" and self.source is not None:
        trace.note("tensor with grad", self.source)
    return original(self, tx, name, args, kwargs)


@probes.at(TorchInGraphFunctionVariable, "call_function")
def called_function(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Note reads and changes of the mode."""
    if self.value in (torch.is_grad_enabled, torch._C._set_grad_enabled):
        trace.note("grad mode")
    return original(self, tx, args, kwargs)


@probes.at(GradModeVariable, "create")
def made_mode(trace: Any, original: Any, tx: Any, target_value: Any, initialized: bool = False, **keywords: Any) -> Any:
    """Note `torch.set_grad_enabled`, which may be called without a `with`."""
    if initialized:
        trace.note("grad mode")
    return original(tx, target_value, initialized, **keywords)
