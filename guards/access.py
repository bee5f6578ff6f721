"""Access paths: plain data that says where to find a value that the trace depends on.

A path is a root and a tuple of steps. Roots: `("argument", name)`, `("global", name)` (a global of the method's
defining module), `("module", name)` (an importable module), `("closure", name)` (a free variable of the method),
`("environment", name)` (an environment variable, None where it is not set) and `("builtins", "")`. Steps are pairs, see
`_STEPS`. The same path is walked at build time, at load time and, compiled into Python source, on every call.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CellType
from typing import Any

from msgspec import Struct, field

from gearcache.guards.keys import dict_item, item, unpacked
from gearcache.interrupts import raise_interrupt

Step = tuple[str, Any]


def _nth_key(value: Any, index: Any) -> Any:
    """Return a key by its place among all that were added, as Dynamo counts: an `OrderedDict` may order them anew."""
    for position, key in enumerate(dict.keys(value) if isinstance(value, dict) else value):
        if position == index:
            return key
    raise IndexError(index)


def _nth_value(value: Any, index: Any) -> Any:
    """Return what a dictionary holds for a key: its class may make another object of that at each read."""
    key = _nth_key(value, index)
    return dict.__getitem__(value, key) if isinstance(value, dict) else value[key]


def _member(cls: type, name: str) -> Any:
    """Return the attribute of a class or the first of its bases that defines it, as stored in the class."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    raise AttributeError(name)


def _dataclass_fields(value: Any, _: Any) -> tuple[str, ...]:
    return tuple(value.__dataclass_fields__)


_STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "attr": getattr,
    "item": item,
    "list_item": lambda value, key: list.__getitem__(value, key),
    "dict_item": dict_item,
    "key_item": lambda value, key: item(value, unpacked(key)),
    "dict_key_item": lambda value, key: dict_item(value, unpacked(key)),
    "nth_key": _nth_key,
    "nth_value": _nth_value,
    "type": lambda value, _: type(value),
    "call": lambda value, _: value(),
    "fields": _dataclass_fields,
    "member": _member,
    "called_with": lambda value, text: value(text),
    "size": lambda value, dim: value.size(dim),
}

_SOURCE: dict[str, str] = {
    "attr": "{base}.{argument}",
    "item": "{base}[{argument!r}]",
    "list_item": "{base}[{argument!r}]",
    "dict_item": "{base}[{argument!r}]",
    "type": "type({base})",
    "call": "{base}()",
    "member": "{base}.{argument}",
    "called_with": "{base}({argument!r})",
    "size": "{base}.size({argument})",
}


#: What `Access.find` returns for a path that leads nowhere.
NOWHERE: Any = object()

#: Where a module stores its tensors.
TENSOR_DICTIONARIES = (("attr", "_parameters"), ("attr", "_buffers"))


#: Where a module's attributes are looked up after its own dictionary and its class.
MODULE_PARTS = ("_parameters", "_buffers", "_modules")


def own_attributes(value: Any) -> dict[str, Any] | None:
    """Return the dictionary of an object's own attributes, bypassing its class's `__dict__`; None where it has none."""
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return attributes if type(attributes) is dict else None


@functools.lru_cache(maxsize=1024)
def _module_steps(dotted: str) -> tuple[Step, ...]:
    """Return the steps to a module below another one; siblings share them."""
    if not dotted:
        return ()
    above, _, name = dotted.rpartition(".")
    return (*_module_steps(above), ("attr", "_modules"), ("item", name))


class Scope(Struct, frozen=True):
    """Where the roots of access paths are looked up: one method, bound to one instance."""

    arguments: Mapping[str, Any]
    module_globals: Mapping[str, Any]
    closure: Mapping[str, CellType] = field(default_factory=dict)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise LookupError(f"module `{name}` cannot be imported: {error}") from error


class Access(Struct, frozen=True):
    """One access path; hashable, and plain data through `to_plain`."""

    root: tuple[str, str]
    steps: tuple[Step, ...] = ()

    def then(self, kind: str, argument: Any = None) -> Access:
        """Return the path one step further."""
        return Access(self.root, (*self.steps, (kind, argument)))

    @property
    def text(self) -> str:
        """The path as a user would write it, e.g. `cache.layers[0].keys`."""
        kind, name = self.root
        text = {"builtins": "builtins", "environment": f"environment variable {name}"}.get(kind, name)
        for step, argument in self.steps:
            if step == "dict_item" and text.endswith((".__dict__", "._modules", "._parameters", "._buffers")):
                text = f"{text.rsplit('.', 1)[0]}.{argument}"
            elif step in ("key_item", "dict_key_item"):
                text = f"{text}[{unpacked(argument)!r}]"
            elif step in _SOURCE:
                text = _SOURCE[step].format(base=text, argument=argument)
            else:
                text = f"{step}({text}, {argument!r})"
        return text

    def resolve_root(self, scope: Scope) -> Any:
        """Return the object at the root; `LookupError` if it is missing."""
        kind, name = self.root
        if kind == "argument":
            return scope.arguments[name]
        if kind == "global":
            if name in scope.module_globals:
                return scope.module_globals[name]
            return getattr(builtins, name)
        if kind == "closure":
            return scope.closure[name].cell_contents
        if kind == "module":
            return sys.modules.get(name) or _import(name)
        if kind == "environment":
            return os.environ.get(name)
        return builtins.__dict__

    def resolve(self, scope: Scope) -> Any:
        """Walk the path; passes on what the walked objects raise, which may be anything."""
        value = self.resolve_root(scope)
        for kind, argument in self.steps:
            value = _STEPS[kind](value, argument)
        return value

    def find(self, scope: Scope) -> Any:
        """Walk the path; `NOWHERE` if an object raises, as it is another one than in the trace."""
        try:
            return self.resolve(scope)
        except Exception as error:
            raise_interrupt(error)
            return NOWHERE

    def prefixes(self) -> Iterator[Access]:
        """Yield the paths of its first steps, itself last."""
        for length in range(1, len(self.steps) + 1):
            yield Access(self.root, self.steps[:length])

    def starts_with(self, other: Access) -> bool:
        """Whether `other` is this path or leads to it."""
        return self.root == other.root and self.steps[: len(other.steps)] == other.steps

    @property
    def is_below_modules(self) -> bool:
        """Whether it leads from its root to a parameter or buffer by nothing but modules."""
        return isinstance(self.to_plain(), str)

    def to_plain(self) -> list[Any] | str:
        """Return msgpack-able data; one text for a parameter or buffer of a module, as there are many."""
        if self.steps[-2:-1] and self.steps[-2] in TENSOR_DICTIONARIES and " " not in self.root[1]:
            names = ".".join(str(name) for _, name in self.steps[1::2])
            text = f"{' '.join(self.root)} {self.steps[-2][1]} {names}"
            if Access._of_text(text) == self:  # no name has a dot in it, and all are texts
                return text
        return [list(self.root), [[kind, argument] for kind, argument in self.steps]]

    @staticmethod
    def from_plain(data: Any) -> Access:
        """Inverse of `to_plain`; unknown step kinds are refused with `ValueError`."""
        if isinstance(data, str):
            return Access._of_text(data)
        (kind, name), steps = data
        for step, _ in steps:
            if step not in _STEPS:
                raise ValueError(f"unknown access step {step!r}")
        return Access((kind, name), tuple((step, argument) for step, argument in steps))

    @staticmethod
    def _of_text(text: str) -> Access:
        """Return the path of `<root kind> <root name> <_parameters or _buffers> <name as of named_parameters>`."""
        kind, name, dictionary, dotted = text.split(" ", 3)
        holder = ("attr", dictionary)
        if holder not in TENSOR_DICTIONARIES:
            raise ValueError(f"unknown dictionary {dictionary!r} of a module")
        module, _, tensor = dotted.rpartition(".")
        return Access((kind, name), (*_module_steps(module), holder, ("item", tensor)))


class Walker:
    """Resolves many paths over one scope and walks every shared prefix once.

    Not thread safe; meant for one pass over the evidence, while nothing changes the objects.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._roots: dict[tuple[str, str], Any] = {}
        self._children: dict[tuple[int, str, Any], Any] = {}
        self._alive: list[Any] = []
        #: The class that each name stands for, see `guards.evidence.kinds`.
        self.classes: dict[str, type] = {}
        self.names: dict[type, str] = {}

    def resolve(self, access: Access) -> Any:
        """Return the value at `access`, like `Access.resolve`."""
        try:
            value = self._roots[access.root]
        except KeyError:
            value = self._roots[access.root] = access.resolve_root(self._scope)
        children = self._children
        for kind, argument in access.steps:
            key = (id(value), kind, argument)
            try:
                value = children[key]
            except KeyError:
                value = children[key] = _STEPS[kind](value, argument)
                self._alive.append(value)
        return value

    def find(self, access: Access) -> Any:
        """Return the value at `access`, like `Access.find`."""
        try:
            return self.resolve(access)
        except Exception as error:
            raise_interrupt(error)
            return NOWHERE

    @property
    def objects(self) -> list[Any]:
        """All objects met so far, those on the way to a value among them."""
        return [*self._roots.values(), *self._alive]

    def resolve_plain(self, path: Any) -> Any:
        """Return the value at a path in plain form, without keeping the objects on the way."""
        if isinstance(path, str):
            return self.resolve(Access.from_plain(path))
        (kind, name), steps = path
        root = (kind, name)
        try:
            value = self._roots[root]
        except KeyError:
            value = self._roots[root] = Access(root).resolve_root(self._scope)
        for step, argument in steps:
            value = getattr(value, argument) if step == "attr" else _STEPS[step](value, argument)
        return value
