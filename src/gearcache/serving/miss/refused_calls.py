"""Remembers calls for which no graph could be made: they are not traced at each call, which may take minutes.

After some calls that the method rejects, it runs a call without a graph before the call is traced: a client that sends
nothing else costs the process no traces. After some calls that differ only in ints and sizes, and for which the same
error was found, the next ones get it without a trace for a while.
"""

from __future__ import annotations

import collections
import copy
import os
import time
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from msgspec import Struct

from gearcache.errors import CompileError, GearcacheError, MethodRaises
from gearcache.guards.access import own_attributes
from gearcache.guards.evidence.code import code_objects
from gearcache.guards.evidence.names import module_of
from gearcache.guards.evidence.tensor_facts import PLAIN_TYPES
from gearcache.interrupts import raise_interrupt
from gearcache.serving.call.call import Call

#: A call is retried after this many times the duration of the last attempt, even if nothing has changed.
PATIENCE = 20.0
_MOST = 64
#: After this many rejected calls without a build in between, the method runs before a trace.
_REJECTED = 3
#: Seconds for which a call that was rejected without a trace is not traced either.
_REJECTED_SECONDS = 60.0
#: Types whose equal values are interchangeable; others are compared as text (-0.0 and 0.0, NaN).
_SCALARS = frozenset((bool, int, str, bytes, type(None)))
_FLOATS = frozenset((float, complex))
_FLAGS = frozenset((bool, type(None)))


class _Streak(Struct):
    """An error that one build after the other has ended with."""

    error: GearcacheError
    #: What the calls have in common.
    structure: Any
    count: int
    #: When a call is traced again.
    end: float

    def follows(self, error: GearcacheError, structure: Any) -> bool:
        same_error = type(error) is type(self.error) and str(error) == str(self.error)
        return same_error and structure == self.structure


class RefusedCalls:
    """Errors of builds, by the call and what its method can see directly: its module, its globals, its modes.

    Changes elsewhere are found by the next attempt, when it is due, or after a `refresh`.
    """

    def __init__(self) -> None:
        self._errors: dict[Any, tuple[GearcacheError, float]] = {}
        #: The last traces that ended in an exception, since the last build.
        self._raised: list[MethodRaises] = []
        #: The last call that was left to the method without a trace.
        self._untraced: MethodRaises | None = None
        self._streak: _Streak | None = None

    def check(self, call: Call) -> None:
        """Raise the error of a like call again, unless another attempt is due."""
        if not self._errors:
            return
        key = likeness(call)
        if key not in self._errors and call.is_run:
            self._check_streak(call)
        if self._untraced is not None and self._untraced.is_outdated:  # it returned: calls are no longer all rejected
            self.forget_raised()
        if key not in self._errors and call.is_run and self._rejects:
            cause = "it was not traced, since the last traces ended in exceptions; it will be if the method returns"
            self._untraced = MethodRaises(self._raised[-1].method, cause)
            self._remember(key, self._untraced, _REJECTED_SECONDS)
        error, retry_time = self._errors.get(key, (None, 0.0))
        if error is None or time.monotonic() >= retry_time:
            return
        repeated = _repeated(error, "a like call was refused before", retry_time)
        if isinstance(repeated, MethodRaises) and isinstance(error, MethodRaises):
            if error.is_outdated:
                return
            repeated.remembered, repeated.is_repeated, repeated.has_run = error, True, error.has_run
        raise repeated

    def _check_streak(self, call: Call) -> None:
        streak = self._streak
        if streak is None or streak.count < _REJECTED or time.monotonic() >= streak.end:
            return
        if likeness(call, exact=False) == streak.structure:
            raise _repeated(
                streak.error, f"the last {streak.count} calls of its kind were refused for this", streak.end
            )

    def add(self, call: Call, error: GearcacheError, seconds: float) -> None:
        """Record the error of a build and its duration; errors caused by an unforeseen exception are not recorded."""
        raise_interrupt(error)
        cause = error.__cause__
        is_foreseen = cause is None or module_of(type(cause)).startswith(("torch", "gearcache"))
        if not is_foreseen and not isinstance(error, MethodRaises):
            return
        remembered = copy.copy(error)  # without the frames, which hold tensors of the call
        if isinstance(error, MethodRaises):
            error.remembered = remembered  # type: ignore[assignment]
            self._raised = [*self._raised[1 - _REJECTED :], remembered]  # type: ignore[list-item]
        else:
            structure, count = likeness(call, exact=False), 1
            if self._streak is not None and self._streak.follows(remembered, structure):
                count += self._streak.count
            self._streak = _Streak(remembered, structure, count, time.monotonic() + PATIENCE * seconds)
            if isinstance(error, CompileError) and count == 1:  # a compiler may fail for once
                return
        self._remember(likeness(call), remembered, PATIENCE * seconds)

    def forget_raised(self) -> None:
        """Trace calls without a graph again before they run: one of them was built, or has returned."""
        self._raised, self._untraced, self._streak = [], None, None

    @property
    def _rejects(self) -> bool:
        """Whether the method rejects calls, as the last traces and the runs after them have shown."""
        return len(self._raised) >= _REJECTED and not any(error.has_run for error in self._raised)

    def _remember(self, key: Any, error: GearcacheError, seconds: float) -> None:
        if len(self._errors) >= _MOST:
            self._errors.clear()
        self._errors[key] = error, time.monotonic() + seconds


def _repeated(error: GearcacheError, why: str, end: float) -> GearcacheError:
    repeated = copy.copy(error)
    if hasattr(repeated, "add_note"):  # since Python 3.11
        seconds = end - time.monotonic()
        repeated.add_note(f"{why}, so this one was not traced: it will be in {seconds:.0f} s, or after `.refresh()`")
    return repeated


class _Same:
    """Equal for the same object only: another one may get the address of one that is gone. Keeps none alive."""

    def __init__(self, value: Any) -> None:
        try:
            self._object: Callable[[], Any] = weakref.ref(value)
        except TypeError:  # of a class without weak references
            self._object = lambda: value
        self._hash = id(value)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, _Same) and (value := self._object()) is not None and value is other._object()
        )

    def __hash__(self) -> int:
        return self._hash


def likeness(call: Call, *, exact: bool = True) -> Any:
    """Return a value that is equal for calls that are refused for the same reason.

    Unless `exact`, ints and sizes of the arguments do not count.
    """
    instance = next(iter(call.arguments.values()))
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), call.stance, frozenset(os.environ.items())
    arguments = tuple((name, _outline(value, exact=exact)) for name, value in call.given.items())
    places = [id(value) for value in call.given.values()]
    joined = tuple(map(places.index, places))
    # The instance is represented by its identity; the content of its modules is listed.
    module_globals = call.scope.module_globals
    used = _used_names(instance, module_globals)
    seen = {name: value for name, value in list(module_globals.items()) if name in used}
    return modes, arguments, joined, tuple(_parts(instance)), _outlines(seen)


def _used_names(instance: Any, module_globals: Mapping[str, Any]) -> set[str]:
    """Return the names in the code of a file's functions and methods, without those of a script's loop."""
    classes = [value for value in list(module_globals.values()) if isinstance(value, type)]
    spaces = [module_globals, *map(vars, classes), *map(vars, type(instance).__mro__)]
    functions = [value for space in spaces for value in list(space.values()) if type(value) is types.FunctionType]
    codes = [function.__code__ for function in functions if function.__globals__ is module_globals]
    return {name for code in codes for nested in code_objects(code) for name in nested.co_names}


def _parts(instance: Any) -> Iterable[Any]:
    """Yield the content of the module, its submodules and their classes; no user code is called."""
    queue, seen = [instance], set()
    classes: dict[type, None] = {}
    while queue:
        module = queue.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        classes.update(dict.fromkeys(type(module).__mro__))
        attributes = own_attributes(module) or {}
        yield _Same(module), _Same(type(module)), _outlines(attributes)
        children = attributes.get("_modules")
        if type(children) is dict:
            queue.extend(children.values())
    for cls in classes:
        if not module_of(cls).startswith(("torch.nn.modules", "builtins")):
            yield _Same(cls), _outlines(vars(cls))


def _outlines(values: Mapping[str, Any]) -> Any:
    return tuple((name, _outline(value, 2)) for name, value in list(values.items()))


def _outline(value: Any, depth: int = 4, *, exact: bool = True) -> Any:
    """Return type and value, items of containers, the layout of a tensor; for other objects, the identity."""
    kind = type(value)
    if kind is int and not exact:
        return kind
    if kind in _SCALARS:
        return kind, value
    if kind in PLAIN_TYPES:
        if not exact:
            return kind, value.dtype, value.dim(), value.device
        layout = tuple(value.stride()) if value.layout == torch.strided else str(value.layout)
        return kind, value.dtype, tuple(value.shape), layout, value.device, value.requires_grad, value._base is None
    if kind in _FLOATS:
        return kind, repr(value)
    if kind is types.FunctionType:
        return _Same(value), _Same(value.__code__)
    if depth and kind in (list, tuple):
        return kind, tuple(_outline(item, depth - 1, exact=exact) for item in value)
    if depth and kind in (dict, collections.OrderedDict):
        items = list(value.items())
        return kind, tuple((_outline(key, 0), _outline(item, depth - 1, exact=exact)) for key, item in items)
    if depth and kind in (set, frozenset):
        return kind, frozenset(_outline(item, 0) for item in list(value))
    # Of an object its flags: numbers and texts may be other ones at each call. `_parts` lists modules.
    attributes = own_attributes(value) if depth and not isinstance(value, (type, torch.nn.Module)) else None
    flags = [(name, item) for name, item in list((attributes or {}).items()) if type(item) in _FLAGS]
    return _Same(value), tuple(flags)
