"""Finds the forward of a module that can be attached, or the reason why it cannot be."""

from __future__ import annotations

import inspect
import types
from typing import Any

import torch

from gearcache.errors import UnsupportedMethod
from gearcache.guards.evidence.names import a_type, module_of
from gearcache.serving.call.decorated_method import CachedFunction
from gearcache.serving.call.functions import check_kind
from gearcache.serving.call.method import CachedMethod


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
        raise UnsupportedMethod(f"attach: `{name}` is not called itself; give the module that holds it, with repeated=")
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
