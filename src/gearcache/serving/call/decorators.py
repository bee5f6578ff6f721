"""Finds a method inside torch's decorators that set autograd modes, and the mode that they set."""

from __future__ import annotations

import types
from typing import Any

import torch
from msgspec import Struct

from gearcache.errors import CaptureError
from gearcache.guards.dispatch.tensors.native import decorating_context

NO_GRAD, INFERENCE_MODE = "no_grad", "inference_mode"


class DecoratedMethod(Struct, frozen=True):
    """A bound method as the user wrote it, without its decorators, and the mode that the decorators set."""

    original: types.MethodType
    function: types.MethodType
    #: `NO_GRAD`, `INFERENCE_MODE`, or empty if there is no such decorator.
    mode: str


def undecorated(method: types.MethodType) -> DecoratedMethod:
    """Look through `torch.no_grad()`, `torch.inference_mode()` and similar decorators.

    `CaptureError` for a decorator that turns autograd on, or that a graph cannot honour.
    """
    inner: Any = method.__func__
    is_off, is_inference = False, False
    while getattr(inner, "__wrapped__", None) is not None and (context := decorating_context(inner)) is not None:
        if isinstance(context, torch.inference_mode):
            is_off = is_inference = bool(context.mode)
        elif isinstance(context, (torch.no_grad, torch.enable_grad)):
            is_off = isinstance(context, torch.no_grad)
        elif isinstance(context, torch.set_grad_enabled):
            is_off = not context.mode
        else:
            name = f"{type(context).__module__}.{type(context).__qualname__}"
            raise CaptureError(_name(method), f"it is decorated with `{name}`; enter that around the call instead")
        if not is_off:
            raise CaptureError(
                _name(method), "its decorator turns autograd on, and a cached call records nothing; leave it out"
            )
        inner = inner.__wrapped__
    mode = INFERENCE_MODE if is_inference else NO_GRAD if is_off else ""
    return DecoratedMethod(method, types.MethodType(inner, method.__self__), mode)


def _name(method: types.MethodType) -> str:
    return f"{type(method.__self__).__name__}.{method.__func__.__name__}"
