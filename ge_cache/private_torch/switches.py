"""Switches of torch that a method may set in a region: Dynamo runs these calls, and a trace may end within a region."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch.nn.attention


@contextlib.contextmanager
def switches_restored() -> Iterator[None]:
    """Restore the default dtype, and which kernels of attention are allowed, in which order."""
    dtype = torch.get_default_dtype()
    kernels = torch.nn.attention._cur_sdpa_kernel_backends()
    order = torch._C._get_sdp_priority_order()
    try:
        yield
    finally:
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)
        if torch.nn.attention._cur_sdpa_kernel_backends() != kernels:
            torch.nn.attention._sdpa_kernel(kernels)
        if torch._C._get_sdp_priority_order() != order:
            torch._C._set_sdp_priority_order(order)
