"""Names of torch that are exchanged while this process traces.

An exchange counts for the thread that makes it: `torch.compile` and eager code of other threads get what was there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_ABSENT = object()
#: What is exchanged now: owner, name, and what was in its place. One thread at a time has any (`capture.turns`).
_in_place: list[tuple[Any, str, Any]] = []


@contextlib.contextmanager
def exchanged(replacements: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Put values into modules or classes, each given as (owner, name, value), and take them out again."""
    present = len(_in_place)
    try:
        for owner, name, value in replacements:
            _in_place.append((owner, name, vars(owner).get(name, _ABSENT)))
            setattr(owner, name, value)
        yield
    finally:
        put_back(present)


def put_back(present: int = 0) -> None:
    """Undo all exchanges but the first `present`; an interrupt may have kept their own end from it."""
    while len(_in_place) > present:
        owner, name, before = _in_place[-1]
        if before is not _ABSENT:
            setattr(owner, name, before)
        elif name in vars(owner):
            delattr(owner, name)
        _in_place.pop()


def here(replacement: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is `replacement` in this thread and `original` in all others."""
    own = threading.get_ident()

    def chosen(*arguments: Any, **keywords: Any) -> Any:
        return (replacement if threading.get_ident() == own else original)(*arguments, **keywords)

    return chosen
