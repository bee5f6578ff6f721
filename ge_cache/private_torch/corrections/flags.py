"""Evaluate a comparison of sizes that a function of torch receives.

`scaled_dot_product_attention(..., is_causal=q.shape[1] > 1)` and `x.sum(-1, keepdim=n > 1)` accept a bool but no
symbol: Dynamo claims that the call fails, although it works. The graph then depends on the answer.
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
    """Evaluate the flags of a function."""
    if not getattr(self.value, "__name__", "").startswith(_FOR_SYMBOLS):
        args, kwargs = _evaluated(args, kwargs)
    return original(self, tx, args, kwargs)


@probes.at(TensorVariable, "call_method")
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Evaluate the flags of a method."""
    args, kwargs = _evaluated(args, kwargs)
    return original(self, tx, name, args, kwargs)


def _evaluated(args: Any, kwargs: Any) -> tuple[Any, Any]:
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
