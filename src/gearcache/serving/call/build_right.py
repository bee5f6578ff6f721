"""Whether the calls of one cached method may compile: an agreement of a job's ranks removes that right.

A method that is made later, from a module on which ranks have agreed, has no graphs that all ranks have. So it may not
compile either, and such modules are marked.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gearcache.errors import CompileNotAgreed

#: Values of `on_miss` that serve calls without a graph and without waiting.
_EAGER = ("eager", "background")
#: The marked modules by their ids.
_marks: dict[int, weakref.ref[Any]] = {}


class BuildRight:
    """The right of one cached method to compile; it lasts until a job agrees on what its ranks serve."""

    def __init__(self, instance: Any = None) -> None:
        """`instance` is the module of the method; if a job has agreed on it, there is no right from the beginning."""
        self._is_withdrawn = is_marked(instance)
        self._builder: int | None = None
        #: Seconds after which the compile of a gear times out.
        self.seconds = math.inf

    def withdraw(self) -> None:
        """Let nothing compile from now on, except in a thread with a grant."""
        self._is_withdrawn = True

    def give_back(self) -> None:
        """Let calls compile as they do without a job: there is no job any more."""
        self._is_withdrawn = False

    @property
    def is_missing(self) -> bool:
        """Whether this thread may not compile."""
        return self._is_withdrawn and not self.is_granted

    @property
    def is_granted(self) -> bool:
        """Whether this thread compiles for a job."""
        return self._builder == threading.get_ident()

    @contextmanager
    def granted(self, seconds: float) -> Iterator[None]:
        """Let this thread compile for the job, each gear within this many seconds."""
        self._builder, self.seconds = threading.get_ident(), max(1.0, seconds)
        try:
            yield
        finally:
            self._builder, self.seconds = None, math.inf

    def may_build(self, method: str, on_miss: str, why: str) -> bool:
        """Whether a call without a stored graph may compile; if False, the method itself runs.

        `CompileNotAgreed` if `on_miss` allows neither.
        """
        if not self.is_missing:
            return True
        if on_miss in _EAGER:
            return False
        raise CompileNotAgreed(method, why)


def mark(module: Any) -> None:
    """Mark a module: its methods may not compile alone."""
    key = id(module)
    _marks[key] = weakref.ref(module, lambda _: _marks.pop(key, None))


def unmark(module: Any) -> None:
    """Remove the mark of a module."""
    _marks.pop(id(module), None)


def is_marked(instance: Any) -> bool:
    """Whether a module is marked."""
    entry = _marks.get(id(instance))
    return entry is not None and entry() is instance
