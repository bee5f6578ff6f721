"""Marks the modules of models on which the ranks of a job have agreed, for methods that are made from one later.

Such a method has no graphs that all ranks have, so it may not compile either.
"""

from __future__ import annotations

import weakref
from typing import Any

#: By the id of a module: the module, and whether its methods run without graphs because the ranks could not agree.
_marks: dict[int, tuple[weakref.ref[Any], bool]] = {}


def mark(module: Any, *, is_eager: bool) -> None:
    """Mark a module: its methods may not compile alone."""
    key = id(module)
    _marks[key] = weakref.ref(module, lambda _: _marks.pop(key, None)), is_eager


def unmark(module: Any) -> None:
    """Remove the mark of a module."""
    _marks.pop(id(module), None)


def mark_of(instance: Any) -> bool | None:
    """Return whether methods of a marked module run without graphs; None for an unmarked module."""
    entry = _marks.get(id(instance))
    return entry[1] if entry is not None and entry[0]() is instance else None
