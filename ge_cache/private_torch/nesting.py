"""How deep a trace is in calls of one kind."""

from __future__ import annotations

from msgspec import Struct


class Nesting(Struct):
    """Calls that run now, each inside the one before: `with trace.state(kind):` is one, of a subclass."""

    depth: int = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
