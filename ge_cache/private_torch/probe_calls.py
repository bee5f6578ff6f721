"""Which probes are put in place, and which of them torch calls. Imports nothing of Dynamo."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

#: A function of ours.
Probe = Any
_watching: list[ProbeCalls] = []


class ProbeCalls:
    """The probes that were put in place, and which of them were called.

    One probe may replace many functions, such as the methods of all classes of one kind: one call marks it as called.
    """

    def __init__(self) -> None:
        #: A probe -> the name in torch of the first function that it replaced.
        self.places: dict[Probe, str] = {}
        self.called: set[Probe] = set()

    @property
    def uncalled(self) -> list[str]:
        """The names in torch of what was replaced by probes that were never called."""
        return [place for probe, place in self.places.items() if probe not in self.called]


@contextlib.contextmanager
def watched_probes() -> Iterator[ProbeCalls]:
    """Record which probes are put in place meanwhile, and which of those are called."""
    calls = ProbeCalls()
    _watching.append(calls)
    try:
        yield calls
    finally:
        _watching.remove(calls)


def note_place(probe: Probe, owner: Any, name: Any) -> None:
    """Record that a probe is put in place."""
    for calls in _watching:
        calls.places.setdefault(probe, _name_in_torch(owner, name))


def note_call(probe: Probe) -> None:
    """Record that a probe is called."""
    for calls in _watching:
        calls.called.add(probe)


def _name_in_torch(owner: Any, name: Any) -> str:
    """Return the name in torch of an owner's attribute; an item of a dictionary has a name of its own."""
    if isinstance(owner, dict):
        item, parts = owner[name], ("__module__", "__qualname__")
        return ".".join(str(getattr(item, part, name)) for part in parts)
    if isinstance(owner, types.ModuleType):
        return f"{owner.__name__}.{name}"
    return f"{owner.__module__}.{owner.__qualname__}.{name}"
