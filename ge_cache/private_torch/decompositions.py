"""Decompose operators as their kernels behave, memory included.

Dropout that drops nothing returns its input. Torch's decomposition in Python, which fake tensors and Inductor use,
returns a copy (torch 2.13, `torch.compile` too), and that of `native_dropout` returns the input where the kernel
copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


def recorded_decompositions(custom: Mapping[Any, Any] | None) -> dict[Any, Callable[..., Any]]:
    """Return a user's decompositions, plus those that remove a dropout that drops nothing from a graph."""
    aten = torch.ops.aten
    return {aten.dropout.default: _dropout, aten.native_dropout.default: _native_dropout, **(custom or {})}


def _dropout(input: torch.Tensor, p: float, train: bool | None) -> Any:
    return NotImplemented if train and p != 0 else input


def _native_dropout(input: torch.Tensor, p: float, train: bool | None) -> Any:
    return NotImplemented if train and p != 0 else (input.clone(), torch.ones_like(input, dtype=torch.bool))
