"""The C checks of torch that a call runs; importing them needs no Dynamo. Each private name has a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def _find_or_none(find: Callable[[], Any]) -> Any:
    """Return the object behind a name of torch; None where it is missing, which `gearcache.torch_names` reports."""
    try:
        return find()
    except AttributeError:
        return None


#: `tensor.size(0)`, or 0 for a scalar, in a third of the time: the C slot behind `len`.
first_size: Callable[[Any], int] = _find_or_none(lambda: torch._C.TensorBase.__len__)  # type: ignore[attr-defined]


#: Whether a torch function mode is active in this thread, in 30 ns.
has_function_mode: Callable[[], bool] = _find_or_none(lambda: torch._C._is_torch_function_mode_enabled)


def tensor_check(
    tensors: Sequence[torch.Tensor],
    sizes: Sequence[Sequence[int | None]],
    strides: Sequence[Sequence[int | None]],
) -> Callable[..., bool]:
    """Return the C check of type, dispatch keys, dtype, device, requires_grad, size, stride and identity.

    Sizes and strides are given (None is any); the rest is read from `tensors`. The check fails for a tensor given
    twice.
    """
    native: Any = torch._C._dynamo.guards.TensorGuards  # its stub knows neither ints nor nested lists
    check: Callable[..., bool] = native(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check


def dispatch_state() -> tuple[int, int]:
    """Return the dispatch keys that this thread includes for all tensors, and those that it excludes."""
    native: Any = torch._C
    included, excluded = native._dispatch_tls_local_include_set(), native._dispatch_tls_local_exclude_set()
    return included.raw_repr(), excluded.raw_repr()


def tensor_kind(tensor: torch.Tensor) -> tuple[type, bool, int]:
    """Return the facts that `tensor_check` reads from an example, besides dtype and device."""
    native: Any = torch._C
    return type(tensor), tensor.requires_grad, native._dispatch_keys(tensor).raw_repr()


def state_check() -> Callable[[], bool]:
    """Return a C check that torch's global state (grad mode, autocast, dtype, threads, ...) is the same as now."""
    return torch._C._dynamo.guards.GlobalStateGuard().check


def state_checks() -> list[Callable[[], bool]]:
    """Return `state_check` for now, and for the same state with grad mode the other way.

    They do not compare inference mode: it changes the dispatch keys of tensors, which `tensor_check` compares.
    """
    current = state_check()
    with torch.set_grad_enabled(not torch.is_grad_enabled()):
        return [current, state_check()]


#: A context of inference mode (its argument: on or off), in a tenth of the time that `torch.inference_mode` takes.
inference_mode: Callable[[bool], Any] = _find_or_none(lambda: torch._C._InferenceMode)


def decorating_context(function: Any) -> Any:
    """Return the context that `torch.no_grad()` or a similar decorator put around a function; else None."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_filename != torch.utils._contextlib.context_decorator.__code__.co_filename:
        return None
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    factory = cells["ctx_factory"].cell_contents
    return getattr(factory, "__self__", factory)


def is_operator(value: Any) -> bool:
    """Whether a value is an operator of `torch.ops`, or all overloads of one."""
    return isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket))
