"""Evaluate a comparison of sizes where a function expects a flag.

`scaled_dot_product_attention(..., is_causal=q.shape[1] > 1)` and `x.sum(-1, keepdim=n > 1)` accept a bool but no
symbol: Dynamo claims that the call fails, although it works. The graph then depends on the answer.
"""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any

import torch
from torch._dynamo.utils import specialize_symnode
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

from gearcache.ge_cache.private_torch.probe import Probes

#: How schemas and annotations spell a bool.
_FLAGS = {"bool", "Optional[bool]", "<class 'bool'>", "bool | None", "typing.Optional[bool]"}
probes = Probes()


@probes.at(TorchInGraphFunctionVariable, "call_function")
def called_function(trace: Any, original: Any, self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
    """Evaluate the flags of a function."""
    if any(map(_is_symbol, (*args, *kwargs.values()))):
        args, kwargs = _settled(self.value, args, kwargs, 0)
    return original(self, tx, args, kwargs)


@probes.at(TensorVariable, "call_method")
def called_method(trace: Any, original: Any, self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Evaluate the flags of a method."""
    if any(map(_is_symbol, (*args, *kwargs.values()))):
        args, kwargs = _settled(f"aten::{name}", args, kwargs, 1)
    return original(self, tx, name, args, kwargs)


def _is_symbol(argument: Any) -> bool:
    # `isinstance` would realise a lazy variable.
    return type(argument) is SymNodeVariable and argument.python_type() is bool


def _settled(function: Any, args: Any, kwargs: Any, first: int) -> tuple[Any, Any]:
    """Return arguments with their flags evaluated; `first` is the number of the first one."""
    specialize: Any = specialize_symnode
    places = [*enumerate(args, first), *kwargs.items()]
    flags = {place for place, value in places if _is_symbol(value) and _is_flag(function, place)}
    if not flags:
        return args, kwargs
    args = [specialize(value) if place in flags else value for place, value in enumerate(args, first)]
    return args, {name: specialize(value) if name in flags else value for name, value in kwargs.items()}


def _is_flag(function: Any, place: int | str) -> bool:
    """Return whether an argument, by position or name, is a bool; `function`: of torch, or the name of an operator."""
    types = _types_in_python(function, place) if isinstance(function, FunctionType) else _types(function, place)
    return bool(types) and types <= _FLAGS


def _types_in_python(function: FunctionType, place: int | str) -> set[str]:
    parameters = inspect.signature(function).parameters
    names = [place] if isinstance(place, str) else list(parameters)[place : place + 1]
    return {str(parameters[name].annotation) for name in names if name in parameters}


def _types(function: Any, place: int | str) -> set[str]:
    """Return the types of an argument in each overload of an operator that has it."""
    operator = function if isinstance(function, str) else torch.jit._builtins._find_builtin(function)  # type: ignore[no-untyped-call]
    arguments = []
    for schema in torch._C._jit_get_schemas_for_operator(operator) if operator else ():
        if isinstance(place, str):
            arguments += [argument for argument in schema.arguments if argument.name == place]
        else:
            arguments += [argument for argument in schema.arguments if not argument.kwarg_only][place : place + 1]
    return {str(argument.type) for argument in arguments}
