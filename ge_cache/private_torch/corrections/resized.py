"""Follow tensors whose sizes or strides are changed in place.

Dynamo notes both when it creates a tensor, and uses the notes also after `y.transpose_(0, 1)` or `y.squeeze_()`:
`torch.compile` is wrong as well (torch 2.13).
"""

from __future__ import annotations

from typing import Any

from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

from gearcache.ge_cache.private_torch.probe import Probes

probes = Probes()


@probes.at(TensorVariable, "call_method")
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Let Dynamo note sizes and strides again after a method."""
    result = original(self, tx, name, args, kwargs)
    _note_again(tx, name, (self, *args))
    return result


@probes.at(TorchInGraphFunctionVariable, "call_function")
def called_function(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Let Dynamo note sizes and strides again after a function."""
    result = original(self, tx, args, kwargs)
    _note_again(tx, str(getattr(self.value, "__name__", "")), (*args, *kwargs.values()))
    return result


def _note_again(tx: Any, name: str, variables: Any) -> None:
    if not name.partition(".")[0].endswith("_") or name.endswith("__"):
        return
    for variable in variables:
        if issubclass(type(variable), TensorVariable) and variable.proxy is not None:
            variable.synchronize_attributes(tx)
