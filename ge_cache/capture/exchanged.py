"""Names of torch that are exchanged while this process traces.

An exchange counts for the thread that makes it: `torch.compile` and eager code of other threads get what was there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

_ABSENT = object()
#: What is exchanged now: owner, name, and what was in its place. One thread at a time has any (`capture.turns`).
_in_place: list[tuple[Any, Any, Any]] = []


@contextlib.contextmanager
def exchanged(replacements: Iterable[tuple[Any, Any, Any]]) -> Iterator[None]:
    """Put values into modules, classes or dicts, each given as (owner, name, value), and take them out again."""
    present = len(_in_place)
    try:
        for owner, name, value in replacements:
            _in_place.append((owner, name, _entries(owner).get(name, _ABSENT)))
            _put(owner, name, value)
        yield
    finally:
        put_back(present)


def put_back(present: int = 0) -> None:
    """Undo all exchanges but the first `present`; an interrupt may have kept their own end from it."""
    while len(_in_place) > present:
        owner, name, before = _in_place[-1]
        if before is not _ABSENT:
            _put(owner, name, before)
        elif name in _entries(owner):
            delattr(owner, name)
        _in_place.pop()


def _entries(owner: Any) -> Mapping[Any, Any]:
    return owner if isinstance(owner, dict) else vars(owner)


def _put(owner: Any, name: Any, value: Any) -> None:
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)


def here(replacement: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is `replacement` in this thread and `original` in all others."""
    own = threading.get_ident()

    def chosen(*arguments: Any, **keywords: Any) -> Any:
        return (replacement if threading.get_ident() == own else original)(*arguments, **keywords)

    return chosen
