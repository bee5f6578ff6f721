"""Which parameters and buffers a trace binds at load; all other tensors are inputs, read on every call."""

from __future__ import annotations

import types
from collections.abc import Collection
from typing import Any


class Weights:
    """What a method's own modules hold is bound: those below its instance, globals and closures.

    What it is given is not: a module among the arguments may be another one at the next call. Nor is what its frame
    writes; a first trace tells that, and the next one is given Dynamo's names of it as `unbound`.
    """

    def __init__(self, function: types.FunctionType, unbound: Collection[str] = ()) -> None:
        code = function.__code__
        #: The names of frame variables that are no arguments of a call.
        self._own = {code.co_varnames[0], *code.co_freevars} if code.co_argcount else set(code.co_freevars)
        self._unbound = frozenset(unbound)

    def are_bound(self, source: Any) -> bool:
        """Whether a tensor of this source of Dynamo's is a parameter or buffer that is bound at load."""
        if type(getattr(source, "base", None)).__name__ != "UnspecializedParamBufferSource":
            return False
        if self.are_replaced(source):
            return False
        while (base := getattr(source, "base", None)) is not None:
            source = base
        return type(source).__name__ != "LocalSource" or source.local_name in self._own

    def are_replaced(self, source: Any) -> bool:
        """Whether the frame puts other tensors in place of those of this source."""
        return source.name in self._unbound
