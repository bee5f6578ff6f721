"""Replace names of torch while this process traces: functions (see `private_torch.probe`), and other values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_ABSENT = object()
#: The current replacements: owner, name, and original value. Only one thread at a time has any (`capture.turns`).
_in_place: list[tuple[Any, Any, Any]] = []


@contextlib.contextmanager
def exchanged(replacements: Iterable[tuple[Any, Any, Any]]) -> Iterator[None]:
    """Put values into modules, classes or dicts, given as (owner, name, value); restore the originals at the end."""
    present = len(_in_place)
    try:
        for owner, name, value in replacements:
            _in_place.append((owner, name, entries_of(owner).get(name, _ABSENT)))
            _put(owner, name, value)
        yield
    finally:
        put_back(present)


def put_back(present: int = 0) -> None:
    """Undo all replacements but the first `present`; an interrupt may have kept their contexts from undoing them."""
    while len(_in_place) > present:
        owner, name, original = _in_place[-1]
        if original is not _ABSENT:
            _put(owner, name, original)
        elif name in entries_of(owner):
            delattr(owner, name)
        _in_place.pop()


def entries_of(owner: Any) -> Mapping[Any, Any]:
    """Return what an owner has itself, by name."""
    return owner if isinstance(owner, dict) else vars(owner)


def _put(owner: Any, name: Any, value: Any) -> None:
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)
