"""The calls that a delaying stance of `torch.compiler.set_stance` has run eagerly, and what differs among calls."""

from __future__ import annotations

from collections.abc import Iterable

from gearcache.guards.access import Access
from gearcache.guards.dispatch.variant import StoredVariant
from gearcache.serving.call import Call
from gearcache.serving.changes import Changes, changes_from, differing_dims, int_places


class DelayedCalls:
    """The sizes of tensors, by argument path, and the ints of delayed calls."""

    def __init__(self) -> None:
        self._calls: list[tuple[dict[str, tuple[int, ...]], dict[Access, int]]] = []

    def __bool__(self) -> bool:
        """Whether a call was delayed."""
        return bool(self._calls)

    def add(self, call: Call) -> None:
        """Note one call."""
        sizes = {path: tuple(tensor.shape) for path, tensor in call.tensors.items()}
        self._calls.append((sizes, int_places(call.given)))

    def changes(self, call: Call, stored: Iterable[StoredVariant]) -> Changes:
        """Return in what a call differs from those before: with `dynamic=None` it becomes dynamic."""
        found = changes_from(call.scope, stored)
        ints = int_places(call.given) if self._calls else {}
        for sizes, numbers in self._calls:
            for path, tensor in call.tensors.items():
                found.dims += [(tensor, dim) for dim in differing_dims(tensor, sizes.get(path, ()))]
            found.ints |= {place for place, value in ints.items() if numbers.get(place, value) != value}
        return found
