"""Decide which parameters and buffers a trace binds at load; all other tensors are inputs, read on every call."""

from __future__ import annotations

import types
from collections.abc import Collection
from typing import Any

from gearcache.ge_cache.capture.source_paths import root_of


class Weights:
    """Tensors of a method's own modules are bound: modules below its instance, globals and closures.

    Tensors of arguments are not bound: the next call may pass another module. Neither are tensors that the frame
    writes: a first trace reports these, and the next trace receives Dynamo's names of them as `unbound`.
    """

    def __init__(self, function: types.FunctionType, unbound: Collection[str] = ()) -> None:
        code = function.__code__
        #: The frame variables that are not arguments of a call.
        self._own_names = {code.co_varnames[0], *code.co_freevars} if code.co_argcount else set(code.co_freevars)
        self._unbound = frozenset(unbound)

    def are_bound(self, source: Any) -> bool:
        """Whether a tensor of this source of Dynamo's is a parameter or buffer that is bound at load."""
        if type(getattr(source, "base", None)).__name__ != "UnspecializedParamBufferSource":
            return False
        if self.are_replaced(source):
            return False
        root = root_of(source)
        return type(root).__name__ != "LocalSource" or root.local_name in self._own_names

    def are_replaced(self, source: Any) -> bool:
        """Return whether the frame replaces the tensors of this source."""
        return source.name in self._unbound
