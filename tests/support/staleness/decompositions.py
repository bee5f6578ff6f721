"""Decompositions of `addcmul`."""

from __future__ import annotations

from typing import Any


def product(first: Any, second: Any) -> Any:
    """What `decompose` calls."""
    return first * second


def decompose(x: Any, first: Any, second: Any, *, value: float = 1) -> Any:
    """A decomposition that calls another function."""
    return x + product(first, second) * value
