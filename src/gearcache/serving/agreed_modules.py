"""The modules of models on which the ranks of a job have agreed: a method that is made of one later has no graphs
that all ranks have either."""

from __future__ import annotations

import weakref
from typing import Any

#: By the id of a module: the module, and whether its methods run without graphs, since the ranks could not agree.
_marks: dict[int, tuple[weakref.ref[Any], bool]] = {}


def mark(module: Any, *, is_eager: bool) -> None:
    """Note that methods of a module may not compile by themselves."""
    key = id(module)
    _marks[key] = weakref.ref(module, lambda _: _marks.pop(key, None)), is_eager


def unmark(module: Any) -> None:
    """Forget what was noted of a module."""
    _marks.pop(id(module), None)


def mark_of(instance: Any) -> bool | None:
    """Return whether methods of a marked module run without graphs; None for what is not marked."""
    found = _marks.get(id(instance))
    return found[1] if found is not None and found[0]() is instance else None
