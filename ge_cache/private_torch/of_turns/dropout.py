"""Compute dropout as its kernels do, memory included.

Dropout that drops nothing returns its input. Torch's decomposition in Python, which fake tensors and Inductor use,
returns a copy (torch 2.13, `torch.compile` too), and that of `native_dropout` returns the input where the kernel
copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch._decomp import decomposition_table

from gearcache.ge_cache.private_torch.probe import Place, Probes

_DROPOUT: Any = torch.ops.aten.dropout.default
probes = Probes()
# It holds the functions that were there when each was first called.
probes.at_value(_DROPOUT, "_dispatch_cache", lambda kept: {})


def _kernels() -> Iterator[Place]:
    yield from ((_DROPOUT.py_kernels, key) for key in [*_DROPOUT.py_kernels])
    yield decomposition_table, _DROPOUT


@probes.at_each(_kernels)
def dropped(trace: Any, original: Any, /, input: torch.Tensor, p: float, train: bool | None) -> Any:
    """Return the input itself where nothing is dropped: fake tensors."""
    return original(input, p, train) if train and p != 0 else input


def recorded_decompositions(custom: Mapping[Any, Any] | None) -> dict[Any, Callable[..., Any]]:
    """Return a user's decompositions, plus those that remove a dropout that drops nothing from a graph."""
    return {_DROPOUT: _dropout, torch.ops.aten.native_dropout.default: _native_dropout, **(custom or {})}


def _dropout(input: torch.Tensor, p: float, train: bool | None) -> Any:
    return NotImplemented if train and p != 0 else input


def _native_dropout(input: torch.Tensor, p: float, train: bool | None) -> Any:
    return NotImplemented if train and p != 0 else (input.clone(), torch.ones_like(input, dtype=torch.bool))
