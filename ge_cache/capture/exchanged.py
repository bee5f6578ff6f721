"""Names of torch that are exchanged while this process traces.

An exchange counts for the thread that makes it: `torch.compile` and eager code of other threads get what was there.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

_ABSENT = object()
#: What is exchanged now: owner, name, and what was in its place. One thread at a time has any (`capture.turns`).
_in_place: list[tuple[Any, Any, Any]] = []
#: What `here` returned -> the replacement in it.
_replacements: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
#: Whom to tell which functions are put in place, and which of them are called.
_watching: list[Hooks] = []


class Hooks:
    """The functions of ours that were put in the place of others, and which of them were called.

    One function may stand in many places, such as the methods of all classes of one kind: a call at one of them shows
    that it is called.
    """

    def __init__(self) -> None:
        #: Code of ours -> the first place where it was put.
        self._places: dict[types.CodeType, str] = {}
        self._called: set[types.CodeType] = set()

    @property
    def uncalled(self) -> list[tuple[str, str]]:
        """The functions that nobody has called: the name of our file, and the name in torch in whose place it stood."""
        left = [(code.co_filename, place) for code, place in self._places.items() if code not in self._called]
        return [(file.rpartition("/")[2], place) for file, place in left]

    def watched(self, owner: Any, name: Any, value: Any) -> Any:
        """Return what to put in place of `value` so that its calls are noted; what is no function stays as it is."""
        if isinstance(value, staticmethod):
            return staticmethod(self._noting(owner, name, value.__func__))
        if isinstance(value, property):
            return property(self._noting(owner, name, value.fget), value.fset)
        return self._noting(owner, name, value) if callable(value) else value

    def _noting(self, owner: Any, name: Any, function: Any) -> Any:
        own = _replacements.get(function, function)
        code = getattr(own, "__code__", None) or type(own).__call__.__code__
        self._places.setdefault(code, _place(owner, name))

        @functools.wraps(function)
        def noting(*arguments: Any, **keywords: Any) -> Any:
            self._called.add(code)
            return function(*arguments, **keywords)

        return noting


def _place(owner: Any, name: Any) -> str:
    """Return the name in torch of what an owner has; that of an item of a dictionary is its own."""
    if isinstance(owner, dict):
        found, parts = owner[name], ("__module__", "__qualname__")
        return ".".join(str(getattr(found, part, name)) for part in parts)
    if isinstance(owner, types.ModuleType):
        return f"{owner.__name__}.{name}"
    return f"{owner.__module__}.{owner.__qualname__}.{name}"


@contextlib.contextmanager
def watched_hooks() -> Iterator[Hooks]:
    """Note which functions this thread puts in place of others meanwhile, and which of those are called."""
    hooks = Hooks()
    _watching.append(hooks)
    try:
        yield hooks
    finally:
        _watching.remove(hooks)


@contextlib.contextmanager
def exchanged(replacements: Iterable[tuple[Any, Any, Any]]) -> Iterator[None]:
    """Put values into modules, classes or dicts, each given as (owner, name, value), and take them out again."""
    present = len(_in_place)
    try:
        for owner, name, value in replacements:
            _in_place.append((owner, name, _entries(owner).get(name, _ABSENT)))
            _put(
                owner, name, functools.reduce(lambda given, hooks: hooks.watched(owner, name, given), _watching, value)
            )
        yield
    finally:
        put_back(present)


def put_back(present: int = 0) -> None:
    """Undo all exchanges but the first `present`; an interrupt may have kept their own end from it."""
    while len(_in_place) > present:
        owner, name, before = _in_place[-1]
        if before is not _ABSENT:
            _put(owner, name, before)
        elif name in _entries(owner):
            delattr(owner, name)
        _in_place.pop()


def _entries(owner: Any) -> Mapping[Any, Any]:
    return owner if isinstance(owner, dict) else vars(owner)


def _put(owner: Any, name: Any, value: Any) -> None:
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)


def here(replacement: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is `replacement` in this thread and `original` in all others."""
    own = threading.get_ident()

    def chosen(*arguments: Any, **keywords: Any) -> Any:
        return (replacement if threading.get_ident() == own else original)(*arguments, **keywords)

    _replacements[chosen] = replacement
    return chosen
