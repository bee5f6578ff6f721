"""Dynamo hooks that evaluate a comparison of sizes where a function expects a flag.

`scaled_dot_product_attention(..., is_causal=q.shape[1] > 1)` and `x.sum(-1, keepdim=n > 1)` accept a bool but no
symbol: Dynamo claims that the call fails, although it works. The graph then depends on the answer.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch

#: How schemas and annotations spell a bool.
_FLAGS = {"bool", "Optional[bool]", "<class 'bool'>", "bool | None", "typing.Optional[bool]"}


def watched_flags(_: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, replacement) of functions that call functions of torch and methods of tensors."""
    from torch._dynamo.utils import specialize_symnode
    from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

    functions: Any = TorchInGraphFunctionVariable
    tensors: Any = TensorVariable
    specialize: Any = specialize_symnode
    call_of_function, call_of_tensor = functions.call_function, tensors.call_method

    def is_symbol(argument: Any) -> bool:
        # `isinstance` would realise a lazy variable.
        return type(argument) is SymNodeVariable and argument.python_type() is bool

    def settled(function: Any, args: Any, kwargs: Any, first: int) -> tuple[Any, Any]:
        places = [*enumerate(args, first), *kwargs.items()]
        flags = {place for place, value in places if is_symbol(value) and _is_flag(function, place)}
        if not flags:
            return args, kwargs
        args = [specialize(value) if place in flags else value for place, value in enumerate(args, first)]
        return args, {name: specialize(value) if name in flags else value for name, value in kwargs.items()}

    @functools.wraps(call_of_function)
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if any(map(is_symbol, (*args, *kwargs.values()))):
            args, kwargs = settled(self.value, args, kwargs, 0)
        return call_of_function(self, tx, args, kwargs)

    @functools.wraps(call_of_tensor)
    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if any(map(is_symbol, (*args, *kwargs.values()))):
            args, kwargs = settled(f"aten::{name}", args, kwargs, 1)
        return call_of_tensor(self, tx, name, args, kwargs)

    yield functions, "call_function", call_function
    yield tensors, "call_method", call_method


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
