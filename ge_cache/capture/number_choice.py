"""Choose which ints and floats of a call become numbers, see `capture.numbers`: while Dynamo wraps each."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gearcache.errors import CaptureError
from gearcache.ge_cache.capture.source_paths import FrameNames, UnknownSourceClass, access_of
from gearcache.guards.access import Access, Scope
from gearcache.guards.evidence.constants import NotConstant
from gearcache.guards.gears.spec import RangeAxis
from gearcache.guards.keys import unpacked
from gearcache.interrupts import raise_interrupt

_ITEMS = ("item", "list_item", "dict_item", "key_item", "dict_key_item")
_PACKED = ("key_item", "dict_key_item")


class NumberRefused(CaptureError):
    """Some ints or floats of a trace cannot be numbers: `symbols` has the known ones, empty where any may be the cause.

    `places` has their paths, if there is no capture that tells them.
    """

    def __init__(
        self, method: str, cause: str, symbols: Iterable[Any] = (), places: Iterable[Access] = frozenset()
    ) -> None:
        super().__init__(method, cause)
        self.symbols = frozenset(symbols)
        self.places = frozenset(places)

    def __reduce__(self) -> Any:
        return CaptureError, (self.method, self.cause)


class NumberChoice(Struct, frozen=True):
    """Which ints and floats of a call should be numbers, if their trace allows it."""

    #: All ints among the arguments.
    arguments: bool = False
    #: Ints and floats at these paths: calls had several values of them, or the frame writes them.
    changing: frozenset[Access] = frozenset()
    #: Those at these paths stay constants: the user asked for that, or an earlier trace failed otherwise.
    constants: frozenset[Access] = frozenset()
    #: Paths of further constants, as patterns.
    declared: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.arguments or bool(self.changing - self.constants)

    def with_changing(self, places: Iterable[Access]) -> NumberChoice:
        """Return the choice with further paths."""
        return replace(self, changing=self.changing | frozenset(places))

    def with_constants(self, places: Iterable[Access]) -> NumberChoice:
        """Return the choice without some paths."""
        return replace(self, constants=self.constants | frozenset(places))


NO_NUMBERS = NumberChoice()


class WantedNumbers:
    """Decides for a trace whether an int or a float becomes a number, and records whether any did."""

    def __init__(self, choice: NumberChoice) -> None:
        self._choice = choice
        self._scope: Scope | None = None
        self._instance = ""
        self._changing: set[Access] = set()
        self._constants: set[Access] = set()
        #: Whether any became a number.
        self.are_given = False

    def begin(self, scope: Scope, instance: str) -> None:
        """Set the names that the frame of the trace sees, and that of the method's instance."""
        self._scope, self._instance = scope, instance
        self._changing = {_place(access, scope) for access in self._choice.changing}
        self._constants = {_place(access, scope) for access in self._choice.constants}

    def __bool__(self) -> bool:
        """Whether there may be numbers."""
        return bool(self._choice)

    def place(self, source: Any) -> Access | None:
        """Return the path of an int; None where no choice can name it."""
        if self._scope is None:
            return None
        try:
            access = access_of(source, FrameNames({}, {}, tuple(self._scope.closure)))
        except (UnknownSourceClass, NotConstant, NotImplementedError):
            return None
        return _place(access, self._scope) if access.root[0] in ("argument", "closure", "global") else None

    def wants(self, source: Any, value: float) -> bool:
        """Return whether an int or a float becomes a number; `source` is Dynamo's."""
        is_float = type(value) is float
        # sympy knows neither infinities, nor NaN, nor the sign of a zero.
        fits = math.isfinite(value) and str(value) != "-0.0" if is_float else -(2**63) <= value < 2**63
        if not self._choice or not fits:
            return False
        place = self.place(source)
        if place is None:
            return False
        kind, name = place.root
        if place in self._constants or any(RangeAxis(path, 0, 1).matches(place.text) for path in self._choice.declared):
            return False
        is_argument = kind == "argument" and name != self._instance and not is_float
        is_number = place in self._changing or (self._choice.arguments and is_argument)
        self.are_given |= is_number
        return is_number


def _place(access: Access, scope: Scope) -> Access:
    """Return a path with one kind of step for items: a trace and a stored check may spell a key differently."""
    steps: list[tuple[str, Any]] = []
    value: Any = None
    try:
        value = access.resolve_root(scope)
        for index, (kind, argument) in enumerate(access.steps):
            if kind == "nth_value":
                kind, argument = "item", list(value)[argument]
            elif kind in _PACKED:
                kind, argument = "item", unpacked(argument)
            elif kind in _ITEMS:
                kind = "item"
            if kind == "item" and isinstance(value, tuple) and (names := getattr(type(value), "_fields", None)):
                kind, argument = "attr", names[argument]
            steps.append((kind, argument))
            value = Access(access.root, access.steps[: index + 1]).resolve(scope)
    except Exception as error:
        raise_interrupt(error)
        return access
    return Access(access.root, tuple(steps))
