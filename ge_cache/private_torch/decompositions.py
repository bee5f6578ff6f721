"""Decompose operators as their kernels behave, memory included.

Dropout that drops nothing returns its input. Torch's decomposition in Python, which fake tensors and Inductor use,
returns a copy (torch 2.13, `torch.compile` too), and that of `native_dropout` returns the input where the kernel
copies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from gearcache.ge_cache.capture.exchanged import exchanged, here


@contextlib.contextmanager
def own_decompositions() -> Iterator[None]:
    """Make fake tensors of this thread treat dropout as real ones do."""
    from torch._decomp import decomposition_table as table

    dropout: Any = torch.ops.aten.dropout.default
    replacements: list[tuple[Any, Any, Any]] = [(dropout, "_dispatch_cache", {})]
    for kernels, name in (*((dropout.py_kernels, key) for key in dropout.py_kernels), (table, dropout)):
        replacements.append((kernels, name, here(_Either(_dropout, kernels[name]), kernels[name])))
    with exchanged(replacements):
        yield


def recorded_decompositions(custom: Mapping[Any, Any] | None) -> dict[Any, Callable[..., Any]]:
    """Return a user's decompositions, plus those that remove a dropout that drops nothing from a graph."""
    aten = torch.ops.aten
    return {aten.dropout.default: _dropout, aten.native_dropout.default: _native_dropout, **(custom or {})}


class _Either:
    """A decomposition that handles what it can, and leaves the rest to the one that it replaces."""

    def __init__(self, ours: Callable[..., Any], theirs: Callable[..., Any]) -> None:
        self._ours, self._theirs = ours, theirs

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        result = self._ours(*arguments, **keywords)
        return self._theirs(*arguments, **keywords) if result is NotImplemented else result


def _dropout(input: torch.Tensor, p: float, train: bool | None) -> Any:
    return NotImplemented if train and p != 0 else input


def _native_dropout(input: torch.Tensor, p: float, train: bool | None) -> Any:
    return NotImplemented if train and p != 0 else (input.clone(), torch.ones_like(input, dtype=torch.bool))
