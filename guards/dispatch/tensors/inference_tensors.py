"""Make inference tensors, normal tensors, and views of another dtype, over the same memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gearcache.guards.dispatch.tensors.native import inference_mode


def remade(tensor: torch.Tensor, is_inference: bool) -> torch.Tensor:
    """Return a fresh tensor as if it had been made with inference mode on, or off."""
    if tensor.is_inference() == is_inference:
        return tensor
    with inference_mode(is_inference), torch.no_grad():
        result = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return result.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())


def unrecorded_view(tensor: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
    """Return a part of a tensor as eager mode makes it under `torch.no_grad()`."""
    with torch.no_grad():
        return tensor.as_strided(sizes, strides, offset)


def retyped_view(
    tensor: torch.Tensor, dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int], offset: int
) -> torch.Tensor:
    """Return a part of a tensor as another dtype; `offset` counts elements of the smaller dtype from the tensor's
    start.

    Raises `RuntimeError`, as eager mode does, where a larger element would not be aligned.
    """
    with torch.no_grad():
        begin = tensor.storage_offset()
        if not tensor.is_complex() and dtype.is_complex and dtype.to_real() == tensor.dtype:
            pairs = (*(2 * stride for stride in strides), 1)
            return torch.view_as_complex(tensor.as_strided((*sizes, 2), pairs, begin + offset))
        if dtype.itemsize > tensor.element_size():
            return tensor.as_strided((0,), (1,), begin + offset).view(dtype).as_strided(sizes, strides)
        if tensor.is_complex() and tensor.dtype.to_real() == dtype:
            whole = torch.view_as_real(tensor)
        else:  # an empty view, since a view with another element size requires strides that the tensor may not have
            whole = tensor.as_strided((0,), (1,), begin).view(dtype)
        return whole.as_strided(sizes, strides, whole.storage_offset() + offset)
