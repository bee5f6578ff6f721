"""Operations in a row that come once or again and again."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct


class Stretch(Struct, frozen=True):
    """`length` operations from operation `start` on, `count` times one after the other; 1 for what does not repeat."""

    start: int
    length: int
    count: int = 1

    @property
    def end(self) -> int:
        """Return the first operation behind all of them."""
        return self.start + self.length * self.count

    def begins(self) -> Iterator[int]:
        """Yield the first operation of each repeat."""
        return iter(range(self.start, self.end, self.length))
