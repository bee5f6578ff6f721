"""Generate checks on access paths as Python source, for the dispatch."""

from __future__ import annotations

import keyword
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

from gearcache.guards.access import _STEPS, Access, Scope, Walker
from gearcache.guards.dispatch.tensors.native import first_size
from gearcache.guards.evidence.checks import Check
from gearcache.guards.evidence.kinds import KINDS


class CheckWriter:
    """Writes checks on access paths as source; a prefix used more than once becomes a temporary.

    The source contains the parameter names of a method. So every other name in it, builtins included, comes from `name`
    or `bind`, which use a prefix that no parameter begins with.
    """

    def __init__(self, scope: Scope, instance_name: str, parameters: Iterable[str]) -> None:
        self.namespace: dict[str, Any] = {}
        self._prefix = _unused_prefix(parameters)
        self._instance_name = instance_name
        self._scope, self._walker = scope, Walker(scope)
        self._uses: dict[Access, int] = {}
        self._temporaries: dict[Access, str] = {}
        self._bound_count = 0
        #: The name of the object whose method is dispatched.
        self.instance = self.name("instance")

    def name(self, word: str) -> str:
        """Return a name for the generated source that no parameter has."""
        return self._prefix + word

    def begin(self, accesses: list[Access]) -> None:
        """Start a group: count how often each prefix is used."""
        self._uses, self._temporaries = {}, {}
        for access in accesses:
            for prefix in access.prefixes():
                self._uses[prefix] = self._uses.get(prefix, 0) + 1

    def bind(self, value: Any, word: str = "") -> str:
        """Return a name for an object; `word` makes it readable, and must be unique to one object."""
        if not word:
            self._bound_count += 1
        name = self.name(word or f"bound{self._bound_count}")
        self.namespace[name] = value
        return name

    def builtin(self, function: Callable[..., Any]) -> str:
        """Return a name for a builtin that no parameter hides."""
        return self.bind(function, function.__name__)

    def path(self, access: Access) -> str:
        """Return the source of an access path."""
        if access in self._temporaries:
            return self._temporaries[access]
        if not access.steps:
            return self._root(access)
        base = self.path(Access(access.root, access.steps[:-1]))
        kind, argument = access.steps[-1]
        if kind == "attr" and _is_name(argument):
            text = f"{base}.{argument}"
        elif kind in ("item", "list_item") and type(argument) in (int, str, bool) and self._is_plain(access):
            text = f"{base}[{argument!r}]"
        elif kind == "type":
            text = f"{self.builtin(type)}({base})"
        else:
            text = f"{self.bind(_STEPS[kind])}({base}, {self.bind(argument)})"
        if self._uses.get(access, 0) > 1:
            name = self.name(f"part{len(self._temporaries)}")
            self._temporaries[access] = name
            return f"({name} := {text})"
        return text

    def _is_plain(self, access: Access) -> bool:
        """Whether the last step is into a container of a builtin class, which `[]` reads as the step does.

        Others may have a `__getitem__`, or make an item for a missing key. A check compares the class before.
        """
        container = self._walker.find(Access(access.root, access.steps[:-1]))
        return type(container) in (dict, list, tuple)

    def _root(self, access: Access) -> str:
        kind, name = access.root
        if kind == "argument":
            return self.instance if name == self._instance_name else checked_name(name)
        if kind == "global":
            return f"{self.bind(self._scope.module_globals)}[{name!r}]"
        if kind == "closure":
            return f"{self.bind(self._scope.closure[name])}.cell_contents"
        return self.bind(access.resolve_root(self._scope))

    def size(self, access: Access, dim: int, *, slot: bool) -> str:
        """Return the source of one size. The C slot takes 53 ns, but has 0 for a scalar; `.shape` 85, `.size()` 140."""
        if dim == 0 and slot:
            return f"{self.bind(first_size, 'first_size')}({self.path(access)})"
        return f"{self.path(access)}.shape[{dim}]"

    def check(self, check: Check, compared: Any) -> str:
        """Return a check as a boolean expression; `compared` is the object that it compares with."""
        kind, expected = KINDS[check.kind], check.expected
        source = kind.source(self, check.access, expected, compared)
        if source is not None:
            return source
        walker = Walker(self._scope)
        return f"{self.bind(lambda value: kind.holds(value, expected, walker))}({self.path(check.access)})"


def _unused_prefix(names: Iterable[str]) -> str:
    """Return a prefix with which none of these names begins."""
    prefix, all_names = "_g_", tuple(names)
    while any(name.startswith(prefix) for name in all_names):
        prefix += "_"
    return prefix


def checked_name(name: str) -> str:
    """Return a name that the compiler keeps unchanged; `ValueError` for others, which only hand-made code has."""
    if not name.isidentifier() or keyword.iskeyword(name) or unicodedata.normalize("NFKC", name) != name:
        raise ValueError(f"{name!r} is not a name")
    return name


def _is_name(attribute: str) -> bool:
    """Return whether `.attribute` reads exactly this attribute: the compiler normalises some non-ASCII names (NFKC)."""
    return attribute.isascii() and attribute.isidentifier() and not keyword.iskeyword(attribute)
