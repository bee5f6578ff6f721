"""Checks of tensors that are not inputs of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gearcache.guards.evidence.names import a_type

#: Classes that are interchangeable: any further question of a method has a check of its own.
PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def tensor_plain(value: Any, *, sizes: bool) -> list[Any]:
    """Return dtype, device type, layout and rank of an ordinary tensor, with `sizes` also its sizes and strides."""
    if type(value) not in PLAIN_TYPES:
        raise TypeError(f"{a_type(value)} is not an ordinary tensor")
    plain = [str(value.dtype).removeprefix("torch."), value.device.type, str(value.layout), value.dim()]
    return [*plain, list(value.shape), list(value.stride())] if sizes else plain


def tensor_text(plain: list[Any]) -> str:
    """Return `tensor_plain` for people."""
    dtype, device, layout, rank, *sizes = plain
    text = f"a {rank}-d {dtype} tensor on {device}"
    if layout != "torch.strided":
        text += f" ({layout})"
    return f"{text} with sizes {sizes[0]} and strides {sizes[1]}" if sizes else text


def is_tensor(value: Any, expected: list[Any]) -> bool:
    """Whether a value is an ordinary tensor like the expected one."""
    return type(value) in PLAIN_TYPES and tensor_plain(value, sizes=len(expected) > 4) == expected


def tensor_predicate(expected: list[Any]) -> Callable[[Any], bool]:
    """Return `is_tensor` for one expectation, quick where sizes do not matter."""
    if len(expected) > 4:
        return lambda value: is_tensor(value, expected)
    dtype, (device, layout, rank) = getattr(torch, expected[0]), expected[1:]
    layout = getattr(torch, layout.removeprefix("torch."))

    def holds(value: Any) -> bool:
        if type(value) not in PLAIN_TYPES or value.dtype is not dtype or value.layout is not layout:
            return False
        return bool(value.dim() == rank and value.device.type == device)

    return holds
