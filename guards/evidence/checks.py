"""Checks: predicates on one access path, as plain data; they express Dynamo's guards.

A check is `(kind, access, expected)` whose `expected` is plain data. The same check serves as evidence (run once when
an entry is loaded) and as a part of the dispatch (compiled to Python source, run on every call).

| kind | holds when |
|---|---|
| `type` | the exact type has this `module:qualname`, and all checks with this text see one type |
| `constant` | the value is this constant, type included |
| `length` | `len()` is this number |
| `keys` | the mapping has these keys in this order |
| `has_attr`, `no_attr` | `hasattr` is true or false |
| `not_own` | the object itself does not hold the attribute: its class makes it (`__getattr__`) |
| `contains`, `lacks` | the container holds the constant or not |
| `not_none` | the value is not `None` |
| `name` | the class, builtin or module has this name |
| `function` | the function has this name and this code |
| `reached` | the function and all functions, defaults and globals that it uses are these |
| `same` | the value is the same object as at another path |
| `distinct` | the value is not the object at any of some other paths, see `guards.evidence.relations` |
| `tensor` | the value is an ordinary tensor of this dtype, device type, layout and rank (and sizes and strides) |
| `reads` | an attribute of the value, or a method without arguments, gives this constant |
| `empty` | the container is empty or None (module hooks) |
| `process_group` | the group of `torch.distributed` has this name and these ranks |
| `bases` | the class has these base classes, itself first, by name |
| `order` | the set has these items in this order |
| `definition` | the function has this name, this code, these defaults and closed-over values |
| `instance`, `subclass` | `isinstance` or `issubclass` with the class at another path gives this answer |
| `numbers` | ints at some paths fulfil conditions, see `guards.evidence.relations` |
| `classes` | these classes have unchanged definitions, see `guards.evidence.members` |
"""

from __future__ import annotations

import types
from typing import Any

from msgspec import Struct

from gearcache.guards.access import Access, Walker
from gearcache.guards.evidence.constants import readable, to_plain
from gearcache.guards.evidence.members import changed_class
from gearcache.guards.evidence.names import a_type, name_of
from gearcache.guards.evidence.predicates import OBSERVERS, PREDICATES, holds, named
from gearcache.guards.evidence.reason import Reason
from gearcache.guards.evidence.relations import RELATIONS, numbers_text, others, relation_holds

KINDS = frozenset(OBSERVERS) | frozenset(PREDICATES) | RELATIONS | {"classes"}


class Failure(Struct, frozen=True):
    """A check that did not hold: the check, and the value found."""

    check: Check
    present: str

    def reason(self, kind: str) -> Reason:
        """Return it as the reason of a miss."""
        return Reason(kind, str(self), self.check.access.text, self.check.wanted, self.present)

    def __str__(self) -> str:
        if self.check.kind == "function":
            return f"`{self.check.access.text}` was the function `{self.check.expected[0]}`, is now {self.present}"
        if self.check.kind == "definition":
            return f"`{self.check.access.text}` or its defaults were changed"
        if self.check.kind == "classes":
            return f"what a class defines was changed: {self.present}"
        if self.check.kind in ("instance", "subclass"):
            path, answer = self.check.expected
            cls = Access.from_plain(path).text
            return f"`{self.check.access.text}`: `is{self.check.kind}` of `{cls}` was {answer}, is now {self.present}"
        if self.check.kind == "reached":
            return f"`{self.check.access.text}`, which the graph holds untraced, or what it uses was changed"
        if self.check.kind == "numbers":
            return f"`{self.check.access.text}`: {self.check.wanted} does not hold"
        return f"`{self.check.access.text}`: {self.check.kind} was {self.check.wanted}, is now {self.present}"


class Check(Struct, frozen=True):
    """One predicate. `expected` is plain data (see `guards.evidence.constants`)."""

    kind: str
    access: Access
    expected: Any

    @property
    def wanted(self) -> str:
        """What is expected, as text."""
        return _text(self.kind, self.expected)

    def failure(self, walker: Walker) -> Failure | None:
        """Return None when the check holds."""
        try:
            value = walker.resolve(self.access)
        except (LookupError, AttributeError, TypeError, ImportError, ValueError) as error:
            return Failure(self, f"not there ({type(error).__name__}: {error})")
        try:
            if is_right(self.kind, self.expected, value, walker):
                return None
            return Failure(self, self._describe(value, walker))
        except (LookupError, AttributeError, TypeError, ImportError, ValueError, ArithmeticError) as error:
            what = "without its counterpart" if self.kind in RELATIONS else f"{a_type(value)}"
            return Failure(self, f"{what} ({type(error).__name__}: {error})")

    def _describe(self, value: Any, walker: Walker) -> str:
        """Return a description of the value found."""
        if self.kind in RELATIONS:
            return {"same": "another object", "distinct": "one of the others"}.get(self.kind, "otherwise")
        if self.kind == "classes":
            name, change = changed_class(self.expected, walker) or ("", "")
            return f"`{name}` {change}"
        if self.kind in ("type", "name") and holds(self.kind, value, self.expected):
            return "another class of this name"
        if self.kind in PREDICATES:
            return "no longer so"
        if self.kind == "function":
            return _described_function(value, self.expected[0])
        return _text(self.kind, OBSERVERS[self.kind](value))

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


def _text(kind: str, plain: Any) -> str:
    if kind == "numbers":
        return numbers_text(plain)
    return readable(plain) if kind == "constant" else repr(plain)


def _described_function(value: Any, name: str) -> str:
    """Return the file and line of a function instead of its name, with its own name where that differs."""
    inner = getattr(value, "__func__", value)
    code = getattr(inner, "__code__", None)
    if not isinstance(code, types.CodeType):
        return f"{a_type(value)}, `{name_of(inner)}`"
    place = f"in `{code.co_filename}`, line {code.co_firstlineno}"
    return f"other code of this name {place}" if name_of(inner) == name else f"another: `{name_of(inner)}` {place}"


def is_one_class(kind: str, value: Any, expected: str, walker: Walker) -> bool:
    """Return whether all checks with this text see the same class: a name may denote two classes.

    Where the checks were made with two classes of one name, `told_apart` has numbered them.
    """
    cls = type(value) if kind == "type" else value
    if not isinstance(cls, type):
        return True
    return walker.classes.setdefault(expected, cls) is cls and walker.names.setdefault(cls, expected) == expected


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


def is_right(kind: str, expected: Any, value: Any, walker: Walker) -> bool:
    """Whether a check of any kind holds for a value; errors of the predicate are passed on."""
    if kind in RELATIONS:
        return relation_holds(kind, expected, value, [walker.resolve(other) for other in others(kind, expected)])
    if kind == "classes":
        return changed_class(expected, walker) is None
    if not holds(kind, value, expected):
        return False
    return kind not in ("type", "name") or is_one_class(kind, value, expected, walker)


def observe(kind: str, access: Access, value: Any, argument: Any = None) -> Check:
    """Make the check that holds for `value` now; `NotConstant` when it has no plain form."""
    if kind in PREDICATES or kind in RELATIONS:
        return Check(kind, access, argument)
    if kind == "constant":
        return Check(kind, access, to_plain(value))
    if kind in ("keys", "order"):
        return Check(kind, access, [to_plain(key) for key in value])
    if kind == "function" and not isinstance(getattr(value, "__func__", value), types.FunctionType):
        return Check("name", access, named(value))
    return Check(kind, access, OBSERVERS[kind](value))


def first_failure(checks: list[Check], walker: Walker) -> Failure | None:
    """Return the first check that does not hold, or None."""
    for check in checks:
        failure = check.failure(walker)
        if failure is not None:
            return failure
    return None
