"""Replace names of torch while this process traces.

A replacement applies to the thread that makes it: `torch.compile` and eager code of other threads use the original.
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
#: The current replacements: owner, name, and original value. Only one thread at a time has any (`capture.turns`).
_in_place: list[tuple[Any, Any, Any]] = []
#: A function that is put in place -> the function of ours that it calls.
_replacements: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
#: The `Hooks` that record which functions are installed, and which of them are called.
_watching: list[Hooks] = []


class Hooks:
    """The functions that replaced others in torch, and which of them were called.

    One function may replace many, such as the methods of all classes of one kind: one call of it marks it as called.
    """

    def __init__(self) -> None:
        #: Code of ours -> the first place where it was installed.
        self._places: dict[types.CodeType, str] = {}
        self._called: set[types.CodeType] = set()

    @property
    def uncalled(self) -> list[tuple[str, str]]:
        """The functions that were never called: the name of our file, and the name in torch that each one replaced."""
        places = [(code.co_filename, place) for code, place in self._places.items() if code not in self._called]
        return [(file.rpartition("/")[2], place) for file, place in places]

    def watched(self, owner: Any, name: Any, value: Any) -> Any:
        """Return a replacement for `value` that records its calls; a value that is not a function stays unchanged."""
        if isinstance(value, staticmethod):
            return staticmethod(self._recorder(owner, name, value.__func__))
        if isinstance(value, property):
            return property(self._recorder(owner, name, value.fget), value.fset)
        return self._recorder(owner, name, value) if callable(value) else value

    def _recorder(self, owner: Any, name: Any, function: Any) -> Any:
        replacement = _replacements.get(function, function)
        code = getattr(replacement, "__code__", None) or type(replacement).__call__.__code__
        self._places.setdefault(code, _place(owner, name))

        @functools.wraps(function)
        def recorder(*arguments: Any, **keywords: Any) -> Any:
            self._called.add(code)
            return function(*arguments, **keywords)

        return recorder


def _place(owner: Any, name: Any) -> str:
    """Return the name in torch of an owner's attribute; an item of a dictionary has a name of its own."""
    if isinstance(owner, dict):
        item, parts = owner[name], ("__module__", "__qualname__")
        return ".".join(str(getattr(item, part, name)) for part in parts)
    if isinstance(owner, types.ModuleType):
        return f"{owner.__name__}.{name}"
    return f"{owner.__module__}.{owner.__qualname__}.{name}"


@contextlib.contextmanager
def watched_hooks() -> Iterator[Hooks]:
    """Record which functions this thread installs meanwhile, and which of those are called."""
    hooks = Hooks()
    _watching.append(hooks)
    try:
        yield hooks
    finally:
        _watching.remove(hooks)


@contextlib.contextmanager
def exchanged(replacements: Iterable[tuple[Any, Any, Any]]) -> Iterator[None]:
    """Put values into modules, classes or dicts, given as (owner, name, value); restore the originals at the end."""
    present = len(_in_place)
    try:
        for owner, name, value in replacements:
            _in_place.append((owner, name, entries_of(owner).get(name, _ABSENT)))
            _put(
                owner,
                name,
                functools.reduce(lambda current, hooks: hooks.watched(owner, name, current), _watching, value),
            )
        yield
    finally:
        put_back(present)


def put_back(present: int = 0) -> None:
    """Undo all replacements but the first `present`; an interrupt may have kept their contexts from undoing them."""
    while len(_in_place) > present:
        owner, name, original = _in_place[-1]
        if original is not _ABSENT:
            _put(owner, name, original)
        elif name in entries_of(owner):
            delattr(owner, name)
        _in_place.pop()


def entries_of(owner: Any) -> Mapping[Any, Any]:
    """Return what an owner has itself, by name."""
    return owner if isinstance(owner, dict) else vars(owner)


def _put(owner: Any, name: Any, value: Any) -> None:
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)


def here(replacement: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is `replacement` in this thread and `original` in all others."""
    thread = threading.get_ident()

    def switch(*arguments: Any, **keywords: Any) -> Any:
        return (replacement if threading.get_ident() == thread else original)(*arguments, **keywords)

    stands_for(switch, replacement)
    return switch


def stands_for(switch: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    """Note which function of ours a function calls: `Hooks` name this one."""
    _replacements[switch] = replacement
