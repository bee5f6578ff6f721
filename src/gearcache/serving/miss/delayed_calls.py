"""Records the calls that a delaying stance of `torch.compiler.set_stance` has run eagerly, and how calls differ."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from gearcache.guards.access import Access
from gearcache.guards.arguments import find_varying
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.serving.call.call import Call
from gearcache.serving.miss.changes import Changes, changes_from, differing_dims


class DelayedCalls:
    """The sizes of tensors and the numbers of delayed calls, by place."""

    def __init__(self) -> None:
        self._calls: list[dict[Access, tuple[int, ...] | float]] = []

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
        changes = changes_from(call.scope, stored)
        present = find_varying(call.given) if self._calls else {}
        for earlier in self._calls:
            for place, value in present.items():
                earlier_value = earlier.get(place)
                if isinstance(value, torch.Tensor) and isinstance(earlier_value, tuple):
                    changes.dims += [(place, dim) for dim in differing_dims(value, earlier_value)]
                elif type(value) in (int, float) and type(earlier_value) is type(value) and value != earlier_value:
                    changes.numbers.add(place)
        return changes
