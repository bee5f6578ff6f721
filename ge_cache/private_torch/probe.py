"""Probes: functions that run in place of functions of torch while this process traces a method, or in a turn.

A file has one `Probes`, whose decorators say where a function listens. The function receives the trace, which is the
`capture.recording.Recording` that it reports to, the function that it stands for, and the arguments:

    probes = Probes()

    @probes.at(BuiltinVariable, "call_id")
    def called_id(trace, original, self, tx, *arguments):
        ...

A probe applies to the thread that traces: `torch.compile` and eager code of other threads use the original. Probes of
turns (`every_probe.OF_TURNS`) apply to all that a turn does, and ignore the trace: there may be none.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct
from torch._dynamo.variables import object_protocol
from torch._dynamo.variables.builtin import BuiltinVariable

from gearcache.ge_cache.capture.exchanged import entries_of, exchanged
from gearcache.ge_cache.private_torch.fake import with_subclasses
from gearcache.ge_cache.private_torch.probe_calls import note_call, note_place
from gearcache.ge_cache.private_torch.renamed import name_here

#: A class, a module or a dictionary, and the name of one of its functions in torch 2.13.
Place = tuple[Any, Any]
Function = Callable[..., Any]


class _Listener:
    """Who listens now; `listening` exchanges these attributes, so that `put_back` restores them after an interrupt."""

    #: What probes report to.
    trace: Any = None
    #: The thread that traces, or that has the turn.
    thread: int | None = None
    #: The modules of Dynamo, as they are when a trace begins.
    modules: tuple[types.ModuleType, ...] = ()


#: The probe and the id of a function -> that function, and what replaces it.
_links: dict[tuple[Function, int], tuple[Any, Any]] = {}
_subclasses = functools.cache(with_subclasses)


def is_here() -> bool:
    """Return whether this is the thread to which probes apply."""
    return threading.get_ident() == _Listener.thread


@functools.cache
def methods_of(cls: type) -> tuple[str, ...]:
    """Return the names of a class's methods, also of those that it inherits."""
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__):  # `inspect.getattr_static` for each name takes longer than many a trace
        members |= vars(base)
    return tuple(name for name, member in members.items() if isinstance(member, types.FunctionType))


class Nesting(Struct):
    """Calls that run now, each inside the one before: `with trace.state(kind):` is one, of a subclass."""

    depth: int = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


class Probes:
    """The probes of one file, in the order in which they are put in place."""

    def __init__(self) -> None:
        self._probes: list[tuple[Callable[[], Iterable[Place]], Callable[[Any, Any], Any]]] = []

    def at(self, owner: Any, *names: str) -> Callable[[Function], Function]:
        """Decorate a function that runs in place of functions of a class, or of a module and those that import them.

        Keywords of a call that a method chooses reach a probe too: its own parameters are then positional-only.
        """
        return self.at_each(lambda: [(each, name) for name in names for each in [owner, *_importing(owner, name)]])

    def at_import(self, owner: types.ModuleType, *names: str) -> Callable[[Function], Function]:
        """Decorate a function that one module sees in place of functions that it imports from another."""
        return self.at_each(lambda: [(owner, name) for name in names])

    def at_each(self, places: Callable[[], Iterable[Place]]) -> Callable[[Function], Function]:
        """Decorate a function that runs in place of many; each trace asks for them, as modules may be new."""

        def register(function: Function) -> Function:
            self._probes.append((places, functools.partial(_link, function)))
            return function

        return register

    def at_field(self, owner: Any, *names: str) -> Callable[[Function], Function]:
        """Decorate a function of a trace and an object that runs before a field of the object is read."""

        def register(function: Function) -> Function:
            self._probes.append((lambda: [(owner, name) for name in names], functools.partial(_field, function)))
            return function

        return register

    def at_value(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Put `make(value)` in place of a value that is no function."""
        self._probes.append((lambda: [(owner, name)], lambda owner, name: make(getattr(owner, name))))

    def replacements(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yield (owner, name, replacement); each is to be put in place before the next one is asked for."""
        for places, replace in self._probes:
            for owner, name in places():
                name = name_here(owner, name)
                yield owner, name, replace(owner, name)


@contextlib.contextmanager
def listening(trace: Any, files: Iterable[Probes]) -> Iterator[None]:
    """Let the probes of some files report to the trace that this thread begins; None for probes of turns."""
    listener: list[tuple[Any, Any, Any]] = [(_Listener, "trace", trace), (_Listener, "thread", threading.get_ident())]
    if trace is not None:
        _forget_classes()
        modules = tuple(module for name, module in sys.modules.items() if name.startswith("torch._dynamo"))
        # Dynamo's handlers of builtins hold the functions that are there when they are made.
        listener += [(_Listener, "modules", modules), (BuiltinVariable, "call_function_handler_cache", {})]
    with exchanged(listener), exchanged(entry for probes in files for entry in probes.replacements()):
        yield


def _forget_classes() -> None:
    """Forget what was found out about classes: they may have changed since the last trace."""
    protocol: Any = object_protocol
    protocol._get_cached_slots.cache_clear()  # a class may have got a `__bool__`
    _subclasses.cache_clear()
    methods_of.cache_clear()


def overriding(cls: Any, name: str) -> Iterator[Place]:
    """Yield a class and its subclasses that have a function of their own by a name, with its name in this release."""
    name = name_here(cls, name)
    return ((kind, name) for kind in _subclasses(cls) if name in vars(kind))


def named_methods(owner: Any, *names: str) -> Iterator[Place]:
    """Yield the places that calls of some methods of a class go through, maybe through two of them.

    Methods are branches of `call_method` or, since torch 2.15, entries of tables, which are called as `call_method` is.
    An object of a user's container class calls an entry of a table of its base without that base's `call_method`.
    """
    yield owner, "call_method"
    for base in owner.__mro__:
        table = vars(base).get("tp_methods", {})
        yield from ((table, name) for name in names if name in table)


def _importing(owner: Any, name: str) -> list[types.ModuleType]:
    """Return the other modules of Dynamo that have imported a function of a module."""
    if not isinstance(owner, types.ModuleType):
        return []
    name = name_here(owner, name)
    function = vars(owner)[name]
    return [other for other in _Listener.modules if other is not owner and vars(other).get(name) is function]


def _link(function: Function, owner: Any, name: Any) -> Any:
    """Return what replaces a function of torch; the same one wherever the function is."""
    note_place(function, owner, name)
    entry = entries_of(owner).get(name)
    original = getattr(owner, name) if entry is None else entry
    key = function, id(original)
    if key not in _links:
        link = _listening(function, getattr(original, "__func__", original))
        _links[key] = original, staticmethod(link) if isinstance(original, staticmethod) else link
    return _links[key][1]


def _listening(function: Function, original: Function) -> Function:
    @functools.wraps(original)
    def link(*arguments: Any, **keywords: Any) -> Any:
        if not is_here():
            return original(*arguments, **keywords)
        note_call(function)
        return function(_Listener.trace, original, *arguments, **keywords)

    return link


def _field(function: Function, owner: Any, name: str) -> Any:
    """Return a property in place of a field, which stays in the object."""
    note_place(function, owner, name)

    def read(self: Any) -> Any:
        if is_here():
            note_call(function)
            function(_Listener.trace, self)
        return self.__dict__[name]

    def write(self: Any, value: Any) -> None:
        self.__dict__[name] = value

    return property(read, write)
