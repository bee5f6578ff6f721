"""The C checks of torch that a call runs; importing them needs no Dynamo. One test per private name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


def tensor_check(
    tensors: Sequence[torch.Tensor],
    sizes: Sequence[Sequence[int | None]],
    strides: Sequence[Sequence[int | None]],
) -> Callable[..., bool]:
    """Return the C check of type, dispatch keys, dtype, device, requires_grad, size, stride and identity.

    Sizes and strides are those given (None is any); the rest is taken from `tensors`. The same tensor twice fails.
    """
    guards = torch._C._dynamo.guards.TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    return guards.check  # type: ignore[no-any-return]


def state_check() -> Callable[[], bool]:
    """Return a C check that torch's global state (grad mode, autocast, dtype, threads, ...) is as it is now."""
    return torch._C._dynamo.guards.GlobalStateGuard().check  # type: ignore[no-any-return]
