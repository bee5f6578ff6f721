"""Give functions and methods of tensors the bools that they accept, and follow what they change in place.

`scaled_dot_product_attention(..., is_causal=q.shape[1] > 1)` and `x.sum(-1, keepdim=n > 1)` accept a bool but no
symbol: Dynamo claims that the call fails, although it works. The graph then depends on the answer. Dynamo notes sizes
and strides when it creates a tensor, and uses the notes also after `y.transpose_(0, 1)` or `y.squeeze_()`:
`torch.compile` is wrong as well (torch 2.13).
"""

from __future__ import annotations

from typing import Any

from torch._dynamo.utils import specialize_symnode
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

from gearcache.ge_cache.private_torch.probe import Probes

#: `torch._check_value` makes a condition of the graph of what it receives, `torch.sym_not` another symbol.
_FOR_SYMBOLS = ("_check", "sym_")
probes = Probes()


@probes.at(TorchInGraphFunctionVariable, "call_function")
def called_function(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Call a function."""
    name = str(getattr(self.value, "__name__", ""))
    if not name.startswith(_FOR_SYMBOLS):
        args, kwargs = _evaluated(args, kwargs)
    result = original(self, tx, args, kwargs)
    _note_again(tx, name, (*args, *kwargs.values()))
    return result


@probes.at(TensorVariable, "call_method")
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Call a method."""
    args, kwargs = _evaluated(args, kwargs)
    result = original(self, tx, name, args, kwargs)
    _note_again(tx, name, (self, *args))
    return result


def _evaluated(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return arguments with the current values of their bools."""
    if not any(map(_is_flag, (*args, *kwargs.values()))):
        return args, kwargs
    return [*map(_value_of, args)], {name: _value_of(value) for name, value in kwargs.items()}


def _is_flag(argument: Any) -> bool:
    """Return whether an argument is a symbol for a bool that is known in the traced call."""
    # `isinstance` would realise a lazy variable.
    is_symbol = type(argument) is SymNodeVariable and argument.python_type() is bool
    return is_symbol and bool(argument.sym_num.node.has_hint())


def _value_of(argument: Any) -> Any:
    specialize: Any = specialize_symnode
    return specialize(argument) if _is_flag(argument) else argument


def _note_again(tx: Any, name: str, variables: Any) -> None:
    """Let Dynamo note sizes and strides again after a call that changes its arguments."""
    if not name.partition(".")[0].endswith("_") or name.endswith("__"):
        return
    for variable in variables:
        if issubclass(type(variable), TensorVariable) and variable.proxy is not None:
            variable.synchronize_attributes(tx)
