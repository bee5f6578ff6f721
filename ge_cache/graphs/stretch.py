"""A stretch: consecutive operations that run once or repeat."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct


class Stretch(Struct, frozen=True):
    """`length` operations from operation `start` on, `count` times in a row; 1 for a stretch without repeats."""

    start: int
    length: int
    count: int = 1

    @property
    def end(self) -> int:
        """Return the first operation after all of them."""
        return self.start + self.length * self.count

    def begins(self) -> Iterator[int]:
        """Yield the first operation of each repeat."""
        return iter(range(self.start, self.end, self.length))
