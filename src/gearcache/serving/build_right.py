"""Whether the calls of one cached method may compile: a job whose ranks have agreed takes that right away."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gearcache.errors import CompileNotAgreed
from gearcache.serving.agreed_modules import mark_of

#: Ways to serve calls without a graph that wait for nobody.
_EAGER = ("eager", "background")


class BuildRight:
    """The right of one cached method to compile; it has it until a job agrees on what its ranks serve."""

    def __init__(self, instance: Any = None) -> None:
        """`instance`: whose method it is; of one on which a job has agreed it has no right from the beginning."""
        mark = mark_of(instance)
        self._is_withdrawn = mark is not None
        self._builder: int | None = None
        #: Seconds that the compile of a gear may take.
        self.seconds = math.inf
        #: Whether all ranks run the method itself, since they could not agree.
        self.is_eager = bool(mark)

    def withdraw(self, *, is_eager: bool = False) -> None:
        """Compile nothing from now on, but for a thread that it is granted to; with `is_eager` run no graph either."""
        self._is_withdrawn, self.is_eager = True, is_eager

    def give_back(self) -> None:
        """Compile as without a job: there is none any more."""
        self._is_withdrawn = self.is_eager = False

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
        """Let this thread compile, each gear in so many seconds: the job wants it to."""
        self._builder, self.seconds = threading.get_ident(), max(1.0, seconds)
        try:
            yield
        finally:
            self._builder, self.seconds = None, math.inf

    def may_build(self, method: str, on_miss: str, why: str) -> bool:
        """Whether a call that nothing stored serves may compile; False: the method itself runs.

        `CompileNotAgreed` where `on_miss` allows neither.
        """
        if not self.is_missing:
            return True
        if on_miss in _EAGER:
            return False
        raise CompileNotAgreed(method, why)
