"""Which kernels of attention torch may use: a method may choose them in a region, and a trace may fail within one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch.nn.attention


@contextlib.contextmanager
def kernels_restored_after_a_failure() -> Iterator[None]:
    """Restore which kernels are allowed, in which order, if the block fails: else the region has done so by itself."""
    kernels = torch.nn.attention._cur_sdpa_kernel_backends()
    order = torch._C._get_sdp_priority_order()
    try:
        yield
    except BaseException:
        torch.nn.attention._sdpa_kernel(kernels)
        torch._C._set_sdp_priority_order(order)
        raise
