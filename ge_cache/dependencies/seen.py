"""Find out whether another thread changed what a trace read while it ran.

Dynamo reads an object when the trace comes to it; evidence is made of what is there when the trace is over. If another
thread exchanges a value in between, the graph is of one state and its evidence of another: a later process would find
the second state, and run the graph of the first. So the evidence must hold of each object as the trace saw it.
"""

from __future__ import annotations

import collections
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from msgspec import Struct

from gearcache.ge_cache.dependencies.log import TraceLog
from gearcache.ge_cache.dependencies.paths import Paths
from gearcache.guards.access import Access, Walker, own_attributes
from gearcache.guards.evidence.checks import Check
from gearcache.guards.evidence.kinds import KINDS
from gearcache.interrupts import raise_interrupt

_CONTAINERS = (list, dict, set, collections.deque)
#: Kinds of checks that are about an object itself, not about what it holds.
_OF_OBJECT = frozenset(("type", "name", "bases", "same"))


class Seen:
    """The objects that one trace has read, in order."""

    def __init__(self) -> None:
        self._sights: list[_Sight] = []

    def add(self, source: Any, value: Any, *, count: int | None = None) -> None:
        """Note an object that the trace reads now; `count`: how many items of it Dynamo has found."""
        self._sights.append(_Sight(source, value, type(value), _copied(value), _fixed(value), count))

    def forget(self) -> None:
        """Let go of the objects."""
        self._sights.clear()

    def change(self, log: TraceLog, paths: Paths, checks: Iterable[Check]) -> str | None:
        """Return the place of the first object of which checks do not hold as the trace saw it; None if all do."""
        checks_at: dict[Access, list[Check]] = collections.defaultdict(list)
        for check in checks:
            checks_at[check.access].append(check)
        for sight in self._sights:
            access = paths.find(sight.source)
            if access is None:
                continue
            now = paths.value(access)  # maybe not what evidence was made of: it may be another one every moment
            is_passed = sight.is_like(now) and all(
                _holds(check, sight.shown(check), paths) for check in checks_at[access]
            )
            if sight.is_torn or not is_passed or _are_read(sight.moved_names(now), access, checks_at):
                return access.text
        for access, name, present in _answers(log, paths):
            if Check("no_attr" if present else "has_attr", access, name) in checks_at[access]:
                return access.then("attr", name).text
        return _other_function(log, paths)

    def is_other_now(self, log: TraceLog, paths: Paths) -> bool:
        """Whether a place holds another object now, or other content, or there were two answers about an attribute."""
        for sight in self._sights:
            access = paths.find(sight.source)
            if access is None:
                continue
            try:
                access.resolve_root(paths.scope)
            except Exception as error:  # a global of Dynamo's
                raise_interrupt(error)
                continue
            try:
                now = access.resolve(paths.scope)
                is_made_anew = now is not access.resolve(paths.scope)
            except Exception as error:
                raise_interrupt(error)
                return True
            if not is_made_anew and not sight.is_of(now):
                return True
        answers = set(_answers(log, paths))
        return any((access, name, not present) in answers for access, name, present in answers)


class _Sight(Struct, frozen=True):
    """One object as a trace saw it."""

    source: Any
    value: Any
    cls: type
    #: A copy of a container, or of the dictionary of an object.
    content: Any
    #: What else may be assigned, see `_fixed`.
    fixed: Any
    count: int | None

    @property
    def is_torn(self) -> bool:
        """Whether Dynamo has found more or fewer items in a container than it holds."""
        return self.count is not None and isinstance(self.value, (list, dict)) and self.count != len(self.content)

    def is_of(self, now: Any) -> bool:
        """Whether an object is the one that was seen, and holds the same."""
        if now is not self.value or not self.is_like(now):
            return False
        present = _copied(now)
        if present is None or self.content is None:
            return present is self.content
        # Of a dictionary the keys: each value has a place of its own.
        return len(present) == len(self.content) and all(map(lambda new, old: new is old, present, self.content))

    def is_like(self, now: Any) -> bool:
        """Whether the object that was seen is of its class still, and what is there now has what graphs rely on without
        a check.
        """
        return type(self.value) is self.cls and (self.fixed is None or self.fixed == _fixed(now))

    def shown(self, check: Check) -> Any:
        """Return what a check of the object is about, as it was seen."""
        return self.content if isinstance(self.value, _CONTAINERS) and check.kind not in _OF_OBJECT else self.value

    def moved_names(self, now: Any) -> set[str]:
        """Return the names of attributes that the object has now, or had when it was seen, but not both."""
        if self.content is None or isinstance(self.value, _CONTAINERS):
            return set()
        return set(self.content) ^ set(own_attributes(now) or ())


def _are_read(names: set[str], access: Access, checks_at: Mapping[Access, list[Check]]) -> bool:
    """Whether evidence is about one of some attributes of an object."""
    if not names:
        return False
    own = access.then("attr", "__dict__")
    length = len(access.steps)
    for path, checks in checks_at.items():
        if path in (access, own) and any(_is_about(check, names) for check in checks):
            return True
        if path.starts_with(access) and any(argument in names for _, argument in path.steps[length : length + 2]):
            return True
    return False


def _is_about(check: Check, names: set[str]) -> bool:
    return check.kind == "keys" or (isinstance(check.expected, str) and check.expected in names)


def _answers(log: TraceLog, paths: Paths) -> Iterator[tuple[Access, str, bool]]:
    """Yield the attributes that the trace asked for or read, and whether they were there."""
    for source, name, present in log.of("attribute"):
        access, value = paths.find_value(source)
        if access is not None and not isinstance(value, torch.Tensor):  # some answers about these are Dynamo's own
            yield access, name, present


def _other_function(log: TraceLog, paths: Paths) -> str | None:
    """Return the place of the first function that is another one than the trace has entered there; None if none is."""
    for function, source in log.of("function"):
        access, value = paths.find_value(source)
        present = getattr(value, "__func__", value)
        if isinstance(present, types.FunctionType) and present.__code__ is not function.__code__:
            return "" if access is None else access.text
    return None


def _holds(check: Check, value: Any, paths: Paths) -> bool:
    try:
        return KINDS[check.kind].holds(value, check.expected, Walker(paths.scope))
    except Exception as error:
        raise_interrupt(error)
        return False


def others_run() -> bool:
    """Whether another thread runs Python code of this process."""
    return len(sys._current_frames()) > 1


def _copied(value: Any) -> Any:
    """Return a copy of what a trace reads of an object without naming a place; None if there is nothing such."""
    if isinstance(value, collections.OrderedDict):  # it keeps an order of its own beside that of a dictionary
        copy = collections.OrderedDict(dict.items(value))
        for key in collections.OrderedDict.__iter__(value):
            copy.move_to_end(key)
        return copy
    if isinstance(value, dict):
        return dict.copy(value)
    kind: Any
    for kind in (list, set, collections.deque):
        if isinstance(value, kind):
            return kind.copy(value)
    if isinstance(value, (torch.Tensor, type, types.ModuleType, types.FunctionType)):
        return None
    attributes = own_attributes(value)
    return None if attributes is None else attributes.copy()


def _fixed(value: Any) -> Any:
    """Return what may be assigned to an object in place, and is no content: of a tensor, of a function."""
    if isinstance(value, torch.Tensor):
        strides = value.stride() if value.layout is torch.strided else None
        return value.dtype, value.device, tuple(value.shape), strides
    if isinstance(value, types.FunctionType):
        return value.__code__, value.__defaults__
    return None
