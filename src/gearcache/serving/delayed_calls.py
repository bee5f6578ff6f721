"""The calls that a delaying stance of `torch.compiler.set_stance` has run eagerly, and dims that differ among calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from gearcache.guards.access import Access, Scope
from gearcache.guards.dispatch.variant import StoredVariant
from gearcache.serving.activate import misfit
from gearcache.serving.call import Call


class DelayedCalls:
    """The sizes of delayed calls by argument path."""

    def __init__(self) -> None:
        self._sizes: list[dict[str, tuple[int, ...]]] = []

    def __bool__(self) -> bool:
        """Whether a call was delayed."""
        return bool(self._sizes)

    def add(self, call: Call) -> None:
        """Note one call."""
        self._sizes.append({path: tuple(tensor.shape) for path, tensor in call.tensors.items()})

    def changing_dims(self, call: Call, stored: Iterable[StoredVariant]) -> list[tuple[torch.Tensor, int]]:
        """Return the dims in which a call differs from those before: with `dynamic=None` they become dynamic."""
        found = [
            (tensor, dim)
            for sizes in self._sizes
            for path, tensor in call.tensors.items()
            for dim in _differing_dims(tensor, sizes.get(path, ()))
        ]
        for variant in stored:
            if misfit(variant, call.scope) is None:
                for index, item in enumerate(variant.inputs):
                    if (tensor := _tensor_at(item.access, call.scope)) is None:  # of a variant of what the module was
                        continue
                    for gear in variant.gears:
                        found += [(tensor, dim) for dim in _differing_dims(tensor, gear.sizes[index])]
        return found


def _tensor_at(access: Access, scope: Scope) -> torch.Tensor | None:
    try:
        value = access.resolve(scope)
    except (LookupError, AttributeError, TypeError):
        return None
    return value if isinstance(value, torch.Tensor) else None


def _differing_dims(tensor: Any, sizes: Sequence[int | None]) -> list[int]:
    """Return the dims in which a tensor differs from sizes of the same rank; a dynamic dim (None) always differs."""
    if not isinstance(tensor, torch.Tensor) or tensor.dim() != len(sizes):
        return []
    return [dim for dim, (size, found) in enumerate(zip(sizes, tensor.shape, strict=True)) if size != found]
