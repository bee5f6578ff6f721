"""Finds the forward of a module that can be attached, and gives it the parameter names that its author wrote.

Decorators of transformers and diffusers take `*args, **kwargs`, so a trace of them knows its arguments as
`kwargs['input_ids']`. Dispatch, gears, evidence and messages use the parameters of the traced function. The function
written here has the parameters of the innermost function, and calls the outermost one exactly as it was called.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from inspect import Parameter
from typing import Any

import torch

from gearcache.errors import UnsupportedMethod
from gearcache.guards.dispatch.generated import define
from gearcache.guards.evidence.names import a_type, module_of
from gearcache.serving.call.bound_method import (
    BY_POSITION,
    COUNTS_POSITIONS,
    INFERENCE_MODE,
    NO_GRAD,
    check_kind,
    undecorated,
)
from gearcache.serving.call.call import Given
from gearcache.serving.call.decorated_method import CachedFunction
from gearcache.serving.call.method import CachedMethod

_BY_POSITION_KINDS = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def with_own_names(forward: types.MethodType) -> types.MethodType:
    """Return a forward that takes its arguments by the names that its user gave them.

    It has the mark `COUNTS_POSITIONS`. The forward is returned unchanged if no decorator hides the names, or if a
    decorator has parameters of its own that the inner forward does not have.
    """
    undecorated_forward, mode = undecorated(forward)
    outer: Any = undecorated_forward.__func__
    if getattr(outer, "__wrapped__", None) is None:
        return forward
    try:
        parameters = _parameters(outer)
    except (TypeError, ValueError):
        parameters = None
    if parameters is None:
        return forward
    function = _write_forward(outer, parameters)
    if mode:
        function = {NO_GRAD: torch.no_grad, INFERENCE_MODE: torch.inference_mode}[mode]()(function)
    return types.MethodType(function, forward.__self__)


def _parameters(outer: Any) -> list[Parameter] | None:
    """Return the parameters of the innermost function that the outermost one accepts, without the instance.

    None if nothing is hidden, or if the outermost function has a parameter that the innermost one lacks.
    """
    shown = list(inspect.signature(outer, follow_wrapped=False).parameters.values())
    hides = {parameter.kind for parameter in shown} & {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
    inner = list(inspect.signature(outer).parameters.values())
    if not hides or not inner or inner[0].kind not in _BY_POSITION_KINDS:
        return None
    explicit = [
        parameter for parameter in shown if parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    ]
    if explicit and explicit[0].kind in _BY_POSITION_KINDS:
        explicit = explicit[1:]  # the instance
    names = [parameter.name for parameter in inner[1:]]
    by_position = [parameter.name for parameter in explicit if parameter.kind in _BY_POSITION_KINDS]
    if by_position != names[: len(by_position)] or BY_POSITION in names:
        return None
    further = [parameter for parameter in explicit if parameter.name not in names]
    parameters = [*inner[1:], *further]
    keyword_parameter = next((parameter for parameter in shown if parameter.kind is Parameter.VAR_KEYWORD), None)
    if keyword_parameter is not None and not any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
        used_names = {parameter.name for parameter in parameters}
        parameters.append(
            keyword_parameter
            if keyword_parameter.name not in used_names
            else keyword_parameter.replace(name=f"{keyword_parameter.name}_")
        )
    return sorted(parameters, key=lambda parameter: parameter.kind)


def _write_forward(outer: Any, parameters: list[Parameter]) -> Callable[..., Any]:
    """Write the function. It passes positional arguments by position and leaves out arguments that were not given."""
    instance = next(iter(inspect.signature(outer).parameters))
    used_names = {instance, *(parameter.name for parameter in parameters)}
    outermost, absent, keywords = (_free(name, used_names) for name in ("outermost", "absent", "named"))
    header, values, lines, tail = [instance], [], [], ""
    star = any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters)
    has_marker = False
    for index, parameter in enumerate(parameters):
        name, kind = parameter.name, parameter.kind
        if kind is Parameter.VAR_POSITIONAL:
            header.append(f"*{name}")
            values.append(f"*{name}")
            continue
        if kind is Parameter.VAR_KEYWORD:
            tail = name
            continue
        if kind is Parameter.KEYWORD_ONLY and not (star or has_marker):
            header.append("*")
            has_marker = True
        header.append(f"{name}={absent}")
        following = parameters[index + 1].kind if index + 1 < len(parameters) else None
        if kind is Parameter.POSITIONAL_ONLY:
            values.append(name)
            if following is not Parameter.POSITIONAL_ONLY:
                header.append("/")
            continue
        condition = f"{name} is not {absent}"
        if kind is Parameter.POSITIONAL_OR_KEYWORD:
            condition = f"{BY_POSITION} <= {len(values)} and {condition}"
            values.append(name)
        lines.append(f"        if {condition}: {keywords}[{name!r}] = {name}")
    if not (star or has_marker):
        header.append("*")
    header.append(f"{BY_POSITION}=0")
    if tail:
        header.append(f"**{tail}")
    positional = f"*({', '.join(values)},)[:{BY_POSITION}], " if values else ""
    source = "\n".join(
        [
            f"def make({outermost}, {absent}):",
            f"    def forward({', '.join(header)}):",
            f"        {keywords} = {{}}",
            *lines,
            f"        return {outermost}({instance}, {positional}**{keywords}{f', **{tail}' if tail else ''})",
            "    return forward",
            "",
        ]
    )
    template: Any = define(source, "make", {}, f"parameters of {outer.__qualname__}")(outer, Given.NOT)
    # Its globals are those of the forward, because evidence and messages use them.
    function = types.FunctionType(template.__code__, outer.__globals__, closure=template.__closure__)
    function.__defaults__, function.__kwdefaults__ = template.__defaults__, template.__kwdefaults__
    functools.update_wrapper(function, outer)
    setattr(function, COUNTS_POSITIONS, True)
    return function


def _free(name: str, used_names: set[str]) -> str:
    while name in used_names:
        name += "_"
    used_names.add(name)
    return name


def check_module(module: Any) -> None:
    """Refuse anything that is not a module, and modules whose calls bypass `torch.nn.Module`."""
    if not isinstance(module, torch.nn.Module):
        advice = ": give the instance, not its class" if isinstance(module, type) else ""
        advice = ": give its module, as in `attach(model)`" if isinstance(module, types.MethodType) else advice
        raise UnsupportedMethod(f"attach takes a torch.nn.Module, not {a_type(module)}{advice}")
    name = type(module).__name__
    if hasattr(module, "_orig_mod"):
        raise UnsupportedMethod(
            f"attach takes a module that torch.compile has not compiled: `{name}` wraps one; give the model itself"
        )
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedMethod(f"attach: `{name}` is TorchScript, which runs without Python; give the module itself")
    plain: Any = torch.nn.Module
    if isinstance(module, (torch.nn.ModuleList, torch.nn.ModuleDict)) and type(module).forward is plain.forward:
        raise UnsupportedMethod(f"attach: `{name}` is not called itself; attach the modules in it")
    for special in ("_call_impl", "_wrapped_call_impl"):
        if getattr(type(module), special) is not getattr(plain, special) or special in vars(module):
            raise UnsupportedMethod(f"attach: `{name}` has a `{special}` of its own, which a cached call would skip")


def forward_of(module: torch.nn.Module) -> types.MethodType:
    """Return what a call of the module runs, as a bound method; `UnsupportedMethod` if it is not one."""
    name = type(module).__name__
    own_forward = vars(module).get("forward")
    if own_forward is not None:
        if isinstance(own_forward, types.MethodType) and own_forward.__self__ is module:
            _check_function(own_forward.__func__, name)
            return own_forward
        raise UnsupportedMethod(
            f"attach: the `forward` of this `{name}` was replaced by {_described(own_forward)}, which may do anything "
            f"around the forward of the class; take it away (`del model.forward`), or bind a function that replaces it "
            f"with `types.MethodType(function, model)`"
        )
    class_forward = inspect.getattr_static(type(module), "forward", None)
    if class_forward is inspect.getattr_static(torch.nn.Module, "forward"):
        raise UnsupportedMethod(f"attach: `{name}` has no forward")
    _check_function(class_forward, name)
    return types.MethodType(class_forward, module)


def _check_function(function: Any, name: str) -> None:
    if isinstance(function, (CachedFunction, CachedMethod)):
        raise UnsupportedMethod(f"attach: `{name}.forward` is cached already, by `cache_compile`")
    if not isinstance(function, types.FunctionType):
        raise UnsupportedMethod(f"attach: `{name}.forward` is not a method but {_described(function)}")
    if hasattr(function, "_torchdynamo_orig_callable") or module_of(function).startswith("torch._dynamo"):
        raise UnsupportedMethod(f"attach: `{name}.forward` was compiled by torch.compile; give a module without it")
    check_kind(function)


def _described(value: Any) -> str:
    inner = getattr(value, "func", value)  # a `functools.partial`
    qualified = getattr(inner, "__qualname__", None)
    return f"{a_type(value)} of `{qualified}`" if qualified else a_type(value)
