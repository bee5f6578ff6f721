"""Private names of torch for tensors without data, and for the modes that make them. Each has a test."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch


def fake_mode(shape_env: Any = None) -> Any:
    """Return a mode in which tensors have shapes but no data."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=shape_env)


def shape_env() -> Any:
    """Return an environment for symbolic sizes and numbers."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return ShapeEnv()


@contextlib.contextmanager
def normal_modes() -> Iterator[None]:
    """Turn autograd and inference mode off, so that a trace does not depend on its caller's modes.

    Tensors made meanwhile are normal ones, also fakes of inference tensors: their versions count writes.
    """
    from torch._subclasses.meta_utils import disable_inference_mode_for_fake_prop

    # Leaving inference mode turns autograd on.
    with torch.inference_mode(False), torch.no_grad(), disable_inference_mode_for_fake_prop():
        yield


@contextlib.contextmanager
def without_reports() -> Iterator[None]:
    """Keep torch from logging the traceback of an operation that fails in this thread: the caller reports it."""
    reporter, thread = logging.getLogger("torch._subclasses.fake_tensor"), threading.get_ident()

    def is_of_another(record: logging.LogRecord) -> bool:
        return record.thread != thread or record.levelno < logging.ERROR

    reporter.addFilter(is_of_another)
    try:
        yield
    finally:
        reporter.removeFilter(is_of_another)


def forget_tensors(mode: Any) -> None:
    """Drop the weak references of a mode to the tensors for which it made fakes: they forbid `swap_tensors`."""
    describer = mode.fake_tensor_converter.meta_converter.describer
    describer.lookup_tensor.clear()
    describer.lookup_storage.clear()


def is_fake(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a fake one; imports nothing, as fakes exist only once their module is imported."""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and isinstance(tensor, module.FakeTensor)


@contextlib.contextmanager
def without_meta_modes() -> Iterator[None]:
    """Turn off dispatch modes (fake tensors among them) and every default device of `meta`."""
    from torch import overrides
    from torch.utils._device import DeviceContext
    from torch.utils._python_dispatch import _disable_current_modes

    functions: Any = overrides
    stack = functions._get_current_function_mode_stack()
    other_modes = [mode for mode in stack if not (isinstance(mode, DeviceContext) and mode.device.type == "meta")]
    changed = len(other_modes) != len(stack)

    def exchange(old: list[Any], new: list[Any]) -> None:
        for _ in old:
            functions._pop_mode()
        for mode in new:
            functions._push_mode(mode)

    holder = torch._GLOBAL_DEVICE_CONTEXT
    context = getattr(holder, "device_context", None)
    is_global = context is not None and context.device.type == "meta"
    with _disable_current_modes():
        if changed:
            exchange(stack, other_modes)
        if is_global:
            holder.device_context = None
        try:
            yield
        finally:
            if is_global:
                holder.device_context = context
            if changed:
                exchange(other_modes, stack)


def swap_tensors(left: torch.Tensor, right: torch.Tensor) -> None:
    """Exchange the contents of two tensor objects, as `torch.utils.swap_tensors` does, also where weak references
    exist.

    Marks that a user left on the first one (`set_dim_gears`) stay on it.
    """
    fake_attributes = (
        "fake_mode",
        "fake_device",
        "_fake_device",
        "constant",
        "real_tensor",
        "pytype",
        "dispatch_keys",
        "_is_param",
    )
    torch._C._swap_tensor_impl(left, right)
    if type(left) is not type(right):
        left.__class__, right.__class__ = type(right), type(left)
        fake, real = (left, right) if "fake_mode" in vars(left) else (right, left)
        for name in [name for name in vars(fake) if name in fake_attributes or "memo" in name]:
            vars(real)[name] = vars(fake).pop(name)


def with_own_memory(mode: Any, tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake tensor like a given one, real or fake, that shares memory with no other.

    Tensors that share memory during recording need not do so at a later call, so a graph must not depend on it.
    """
    if tensor.layout is not torch.strided:
        return mode.from_tensor(tensor.detach(), static_shapes=True)  # type: ignore[no-any-return]
    with mode:
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def tracing(mode: Any) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which compilers find the fake mode of the graph that they receive."""
    from torch._guards import TracingContext, tracing

    return tracing(TracingContext(mode))


def python_dispatcher() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which composite operators are decomposed by Python, which keeps sizes symbolic."""
    from torch._dispatch.python import enable_python_dispatcher

    return enable_python_dispatcher()


def with_subclasses(cls: Any) -> list[Any]:
    """Return a class and all its subclasses that exist now."""
    classes = {cls: None}
    for subclass in type.__subclasses__(cls):
        classes |= dict.fromkeys(with_subclasses(subclass))
    return list(classes)
