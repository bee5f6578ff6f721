"""Leaves to a model the calls that its graphs do not serve, for `attach_generate` and `attach_encode`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from gearcache.errors import (
    CaptureError,
    CompileError,
    CompileNotAgreed,
    GearSpecError,
    InputError,
    PaddedResultError,
    UnknownGear,
)

logger = logging.getLogger("gearcache")
#: Errors of a cached method that say that no graph serves a call.
_REFUSALS = (CaptureError, CompileError, CompileNotAgreed, GearSpecError, InputError, PaddedResultError)


class UnservedCall(NamedTuple):
    """Why no graph serves a call: the argument or what else is the reason, its value, and the allowed values."""

    reason: str
    value: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.value}; served: {self.allowed}"


class Misses:
    """Calls of one model without a graph: they raise, or the model itself serves them. Safe to use from threads."""

    def __init__(self, name: str, on_miss: str, count: Callable[[str], None]) -> None:
        """`on_miss` is "raise" or "eager"; `count` counts a call by its reason."""
        self._name, self._raises, self._count = name, on_miss == "raise", count
        self._warned: dict[str, object] = {}

    def attempt(self, serve: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Return what `serve` returns; an `UnservedCall` in place of an error that says that no graph serves."""
        try:
            return serve(*args, **kwargs)
        except _REFUSALS as error:
            if self._raises:
                raise
            return _miss_of(error)

    def leave(self, miss: UnservedCall) -> None:
        """Raise `UnknownGear`, or count a call that the model itself serves; warns once for each reason."""
        if self._raises:
            raise UnknownGear(self._name, *miss)
        self._count(miss.reason)
        if self._warned.setdefault(miss.reason, token := object()) is token:
            logger.warning("`%s` runs without graphs: %s", self._name, miss)


def _miss_of(error: Exception) -> UnservedCall:
    if isinstance(error, UnknownGear):
        return UnservedCall("size", str(error), "up to the largest sizes")
    if isinstance(error, CompileNotAgreed):
        return UnservedCall("ranks", str(error), "what the ranks have agreed on")
    return UnservedCall("no graph", str(error), "what a graph can be made of")
