"""Find where a graph may be cut, and which tensors are alive there."""

from __future__ import annotations

import itertools

from gearcache.ge_cache.graphs.operations import Operations
from gearcache.ge_cache.graphs.stretch import Stretch


class Cuts:
    """For the place before each operation: the tensors made before and used after it, and whether they may cross it."""

    def __init__(self, operations: Operations) -> None:
        count = len(operations.calls)
        alive, sizes, blocked = ([0] * (count + 2) for _ in range(3))
        for number, node in enumerate(operations.calls):
            last_use = min(operations.last_use(number), count - 1)
            if last_use <= number:
                continue
            may_cross = operations.may_cross(number)
            size = node.meta["val"].nbytes if may_cross else 0
            for changes, change in ((alive, 1), (sizes, size), (blocked, int(not may_cross))):
                changes[number + 1] += change
                changes[last_use + 1] -= change
        self._alive, self._sizes, self._blocked = (list(itertools.accumulate(item)) for item in (alive, sizes, blocked))

    def allow(self, stretch: Stretch) -> bool:
        """Whether the graph may be cut between the repeats of a stretch, before the first and after the last one."""
        return not any(self._blocked[place] for place in (*stretch.begins(), stretch.end))

    def alive(self, place: int) -> tuple[int, int]:
        """Return how many tensors are alive at a place, and their bytes."""
        return self._alive[place], self._sizes[place]
