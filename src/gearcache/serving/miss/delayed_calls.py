"""Records the calls that a delaying stance of `torch.compiler.set_stance` has run eagerly, and how calls differ."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from gearcache.guards.access import Access
from gearcache.guards.arguments import find_varying
from gearcache.guards.dispatch.variant import StoredVariant
from gearcache.serving.call.call import Call
from gearcache.serving.miss.changes import Changes, changes_from, differing_dims


class DelayedCalls:
    """The sizes of tensors and the ints of delayed calls, by place."""

    def __init__(self) -> None:
        self._calls: list[dict[Access, tuple[int, ...] | int]] = []

    def __bool__(self) -> bool:
        """Whether a call was delayed."""
        return bool(self._calls)

    def add(self, call: Call) -> None:
        """Record one call."""
        varying = find_varying(call.given).items()
        self._calls.append(
            {place: tuple(value.shape) if isinstance(value, torch.Tensor) else value for place, value in varying}
        )

    def changes(self, call: Call, stored: Iterable[StoredVariant]) -> Changes:
        """Return how a call differs from those before: with `dynamic=None` the differences become dynamic."""
        found = changes_from(call.scope, stored)
        present = find_varying(call.given) if self._calls else {}
        for before in self._calls:
            for place, value in present.items():
                met = before.get(place)
                if isinstance(value, torch.Tensor) and isinstance(met, tuple):
                    found.dims += [(place, dim) for dim in differing_dims(value, met)]
                elif type(value) is int and type(met) is int and value != met:
                    found.ints.add(place)
        return found
