"""Dynamo hooks that follow tensors whose sizes or strides are changed in place.

Dynamo notes both when it creates a tensor, and uses the notes also after `y.transpose_(0, 1)` or `y.squeeze_()`:
`torch.compile` is wrong as well (torch 2.13).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any


def watched_sizes(facts: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield replacements that make Dynamo note sizes and strides anew after each operator that changes them."""
    from torch._dynamo.variables.tensor import TensorVariable
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

    tensor: Any = TensorVariable
    function: Any = TorchInGraphFunctionVariable
    method, call = tensor.call_method, function.call_function

    def note_anew(tx: Any, name: str, variables: Any) -> None:
        if not name.partition(".")[0].endswith("_") or name.endswith("__"):
            return
        for variable in variables:
            if issubclass(type(variable), TensorVariable) and variable.proxy is not None:
                variable.synchronize_attributes(tx)

    @functools.wraps(method)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        result = method(self, tx, name, args, kwargs)
        note_anew(tx, name, (self, *args))
        return result

    @functools.wraps(call)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        result = call(self, tx, args, kwargs)
        note_anew(tx, str(getattr(self.value, "__name__", "")), (*args, *kwargs.values()))
        return result

    yield tensor, "call_method", call_method
    yield function, "call_function", call_function
