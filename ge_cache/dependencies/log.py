"""The log of one trace: what its probes note, and why it is refused.

Dynamo guards little where a change is rare within one process: it does not compare the methods of a class, looks up
environment variables without a guard, and folds calls such as `torch.cuda.is_available()` into constants. Within one
process a set keeps its order, a text its hash, `isinstance` its answer. Another process may differ in each. So a probe
notes what the trace took, as a kind and what it saw. When the trace is over, the other files of this folder turn the
notes of each kind into checks, which are compared when the entry is loaded, or refuse them.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any, TypeVar

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.source_paths import is_given
from gearcache.ge_cache.private_torch import under_way as private_under_way

State = TypeVar("State")
Note = tuple[Any, ...]
#: Sets that collect the code of all traces, successful or not.
_collected: list[set[types.CodeType]] = []


@contextlib.contextmanager
def collected_code() -> Iterator[set[types.CodeType]]:
    """Collect the code of all functions that traces of this process enter meanwhile."""
    codes: set[types.CodeType] = set()
    _collected.append(codes)
    try:
        yield codes
    finally:
        _collected[:] = [each for each in _collected if each is not codes]


class TraceLog:
    """What probes note of one trace."""

    def __init__(self, method: str) -> None:
        self.method = method
        self._notes: dict[str, list[Note]] = {}
        self._refusals: list[str] = []
        self._states: dict[type, Any] = {}

    def note(self, kind: str, *what: Any) -> None:
        """Note something of a kind that the trace took, or did."""
        self._notes.setdefault(kind, []).append(what)

    def note_function(self, function: types.FunctionType, source: Any) -> None:
        """Note a function that the trace enters."""
        self.note("function", function, source)
        for codes in _collected:
            codes.add(function.__code__)

    def of(self, kind: str) -> list[Note]:
        """Return the notes of a kind, in order."""
        return self._notes.get(kind, [])

    def distinct(self, kind: str) -> list[Note]:
        """Return the notes of a kind, each once: not for notes of a user's objects, whose `__eq__` may be anything."""
        return list(dict.fromkeys(self.of(kind)))

    def given(self, kind: str) -> list[Note]:
        """Return the notes of a kind, each once, that begin with the source of an object from before the call."""
        return [note for note in self.distinct(kind) if is_given(note[0])]

    def refuse(self, cause: str, *, at_once: bool = False) -> None:
        """Refuse the trace, when Dynamo has ended it or `at_once`: no other process can compare what it took."""
        self._refusals.append(f"{cause}{private_under_way.place()}")
        if at_once:
            self.raise_refusals()

    def raise_refusals(self) -> None:
        """Raise the first refusal."""
        if self._refusals:
            raise CaptureError(self.method, self._refusals[0])

    def state(self, kind: type[State]) -> State:
        """Return what a file of probes keeps for this trace, made at the first call."""
        if kind not in self._states:
            self._states[kind] = kind()
        state: State = self._states[kind]
        return state
