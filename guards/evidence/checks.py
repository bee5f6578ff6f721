"""Checks: predicates on one access path, as plain data; they express Dynamo's guards. `kinds.py` has their kinds."""

from __future__ import annotations

import types
from typing import Any

from msgspec import Struct

from gearcache.guards.access import Access, Walker
from gearcache.guards.evidence.constants import number_type_of
from gearcache.guards.evidence.kinds import KINDS, named
from gearcache.guards.evidence.names import a_type
from gearcache.guards.evidence.reason import Reason
from gearcache.interrupts import raise_interrupt


class Failure(Struct, frozen=True):
    """A check that did not hold: the check, and the value found."""

    check: Check
    present: str

    def reason(self, kind: str) -> Reason:
        """Return it as the reason of a miss."""
        row = KINDS[self.check.kind]
        subject = row.subject.format(self.check.access.text)
        return Reason(kind, str(self), subject, self.check.wanted, self.present, own_advice=row.advice)

    def __str__(self) -> str:
        return KINDS[self.check.kind].sentence(self.check.access.text, self.check.expected, self.present)


class Check(Struct, frozen=True):
    """One predicate. `expected` is plain data (see `guards.evidence.constants`)."""

    kind: str
    access: Access
    expected: Any

    @property
    def wanted(self) -> str:
        """What is expected, as text."""
        return KINDS[self.kind].wanted(self.expected)

    @property
    def others(self) -> list[Access]:
        """The paths that it leads to beside its own."""
        return KINDS[self.kind].others(self.expected)

    @property
    def number_type(self) -> type | None:
        """`int` or `float` if it compares such a number with that of the trace; None for any other check."""
        return number_type_of(self.expected) if self.kind == "constant" else None

    def failure(self, walker: Walker) -> Failure | None:
        """Return None when the check holds."""
        kind = KINDS[self.kind]
        try:
            value = walker.resolve(self.access)
        except Exception as error:
            raise_interrupt(error)
            return Failure(self, f"not there ({type(error).__name__}: {error})")
        try:
            is_right = kind.holds(value, self.expected, walker)
            return None if is_right else Failure(self, kind.found(value, self.expected, walker))
        except Exception as error:
            raise_interrupt(error)
            what = "without its counterpart" if self.others else f"{a_type(value)}"
            return Failure(self, f"{what} ({type(error).__name__}: {error})")

    def to_plain(self) -> list[Any]:
        """Return msgpack-able data."""
        return [self.kind, self.access.to_plain(), self.expected]

    @staticmethod
    def from_plain(data: Any) -> Check:
        """Inverse of `to_plain`; unknown kinds are refused with `ValueError`."""
        kind, access, expected = data
        if kind not in KINDS:
            raise ValueError(f"unknown check kind {kind!r}")
        return Check(kind, Access.from_plain(access), expected)


def told_apart(checks: list[Check], walker: Walker) -> list[Check]:
    """Return the checks with a number after a class name that another class had first."""
    classes_by_name: dict[str, list[type]] = {}
    numbered_checks = []
    for check in checks:
        if check.kind in ("type", "name"):
            value = walker.resolve(check.access)
            cls = type(value) if check.kind == "type" else value
            if isinstance(cls, type):
                classes = classes_by_name.setdefault(check.expected, [])
                if cls not in classes:
                    classes.append(cls)
                if (number := classes.index(cls)) > 0:
                    check = Check(check.kind, check.access, f"{check.expected}#{number}")
        numbered_checks.append(check)
    return numbered_checks


def observe(kind: str, access: Access, value: Any, argument: Any = None) -> Check:
    """Make the check that holds for `value` now; `NotConstant` when it has no plain form."""
    if kind == "function" and not isinstance(getattr(value, "__func__", value), types.FunctionType):
        return Check("name", access, named(value))
    return Check(kind, access, KINDS[kind].observe(value, argument))


def first_failure(checks: list[Check], walker: Walker) -> Failure | None:
    """Return the first check that does not hold, or None."""
    for check in checks:
        failure = check.failure(walker)
        if failure is not None:
            return failure
    return None
