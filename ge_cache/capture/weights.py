"""Decide which parameters and buffers a trace binds at load; all other tensors are inputs, read on every call."""

from __future__ import annotations

import types
from collections.abc import Collection, Iterable
from typing import Any

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.source_paths import root_of
from gearcache.ge_cache.dependencies.paths import Paths
from gearcache.guards.access import Access
from gearcache.guards.evidence.checks import Check
from gearcache.guards.evidence.names import a_type
from gearcache.guards.evidence.tensor_facts import PLAIN_TYPES, tensor_plain


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


def layout_checks(method: str, paths: Paths, bound: Iterable[Access], instance: str) -> list[Check]:
    """Return the checks of dtypes, sizes and strides of bound weights that the key does not hold.

    The key holds the layouts of what is below an instance's `_modules`; a model may also be in a list, a global or a
    closure. `instance` is the name of the instance's parameter.
    """
    checks = []
    for access in bound:
        if access.root != ("argument", instance) or not access.is_below_modules:
            weight = paths.value(access)
            if type(weight) not in PLAIN_TYPES:
                cause = f"`{access.text}` is {a_type(weight)} outside of the modules of its instance"
                raise CaptureError(method, f"{cause}: assign its module as an attribute of the instance")
            checks.append(Check("tensor", access, tensor_plain(weight, sizes=True)))
    return checks
