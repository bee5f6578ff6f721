"""Access paths of what one trace found, and the objects there at the traced call."""

from __future__ import annotations

import _collections_abc
import types
from collections.abc import Iterable, Iterator
from typing import Any

from gearcache.errors import UncacheableGuard
from gearcache.ge_cache.capture.source_paths import FrameNames, UnknownSourceClass, access_of
from gearcache.guards.access import NOWHERE, Access, Scope, Walker
from gearcache.guards.evidence.constants import NotConstant
from gearcache.guards.evidence.names import name_of


class Paths:
    """Finds the paths of one trace; another process can follow each of them."""

    def __init__(self, method: str, scope: Scope, names: FrameNames) -> None:
        self.method, self.scope, self.names = method, scope, names
        self.walker = Walker(scope)

    def of(self, source: Any) -> Access:
        """Return the path of a Dynamo source; `UncacheableGuard` when there is none."""
        try:
            return access_of(source, self.names)
        except (UnknownSourceClass, NotConstant) as error:
            raise UncacheableGuard(self.method, type(source).__name__, _name(source), str(error)) from None

    def find(self, source: Any) -> Access | None:
        """Return the path of a Dynamo source; None when there is none."""
        try:
            return None if source is None else access_of(source, self.names)
        except (UnknownSourceClass, NotConstant):
            return None

    def value(self, access: Access) -> Any:
        """Return the value at a path in the traced call; None where it leads nowhere."""
        value = self.walker.find(access)
        return None if value is NOWHERE else value

    def find_value(self, source: Any) -> tuple[Access | None, Any]:
        """Return the path of a source and its value, (None, None) where no path leads to it."""
        access = self.find(source)
        if access is None or (value := self.walker.find(access)) is NOWHERE:
            return None, None
        return access, value

    def leads_to(self, access: Access, value: Any) -> bool:
        """Whether a path leads to an object."""
        return self.walker.find(access) is value

    def of_class(self, cls: type, sources: Iterable[Any]) -> Access | None:
        """Return where another process finds a class: at one of its sources, or by its name.

        A name may lead to a module that no hit needs to import. The object at a position may move to another one.
        """
        accesses = [access for access in map(self.find, sources) if access is not None]
        fixed = [access for access in accesses if all(not step.startswith("nth_") for step, _ in access.steps)]
        for access in (*fixed, by_name(cls), *accesses, *_other_paths_of(cls)):
            if not access.root[1].startswith("torch._dynamo") and self.leads_to(access, cls):
                return access
        return None

    def of_function(self, function: types.FunctionType, source: Any) -> tuple[Any, Access] | None:
        """Return (identity, path) where the method finds a function; None when no path leads to it."""
        access = self.find(source)
        if access is None:
            return None
        member = self._as_member(access)
        call = access.then("type").then("member", "__call__")
        for candidate in (member, access, call):
            if candidate is not None and self._leads_to_code(candidate, function):
                if candidate is not access:
                    step = next(index for index, (kind, _) in enumerate(candidate.steps) if kind == "member")
                    owner = self.walker.resolve(Access(candidate.root, candidate.steps[:step]))
                    return ("member", owner, candidate.steps[step:]), candidate
                return ("path", candidate), candidate
        return None

    def of_named(self, function: types.FunctionType) -> tuple[Any, Access] | None:
        """Return (identity, path) of a function by its own name; None when the name leads elsewhere."""
        module, _, qualname = name_of(function).partition(":")
        access = Access(("module", module))
        if "<locals>" in qualname or module.startswith("torch._dynamo"):
            return None
        for part in qualname.split("."):
            if (owner := self.walker.find(access)) is NOWHERE:
                return None
            access = access.then("member" if isinstance(owner, type) else "attr", part)
        for candidate in (access, access.then("attr", "fget"), access.then("attr", "func")):
            if self._leads_to_code(candidate, function):
                return ("named", candidate), candidate
        return None

    def _leads_to_code(self, access: Access, function: types.FunctionType) -> bool:
        value = self.value(access)
        return getattr(getattr(value, "__func__", value), "__code__", None) is function.__code__

    def _as_member(self, access: Access) -> Access | None:
        """Return a path that looks a method up as Python does, first class first: one check then serves all instances.

        Known forms: `type(o).__dict__[name]…`, `type(o).__mro__[i].__dict__[name]…` and `o.name` of a method.
        """
        steps = access.steps
        for index, step in enumerate(steps):
            if step != ("type", None):
                continue
            rest = steps[index + 1 :]
            if rest[:1] == (("attr", "__mro__"),):
                rest = rest[2:]
            if len(rest) >= 2 and rest[0] == ("attr", "__dict__") and rest[1][0] in ("item", "dict_item"):
                return Access(access.root, (*steps[: index + 1], ("member", rest[1][1]), *rest[2:]))
        if not steps or steps[-1][0] != "attr":
            return None
        base, name = Access(access.root, steps[:-1]), steps[-1][1]
        owner = self.walker.find(base)
        if owner is NOWHERE or isinstance(owner, types.ModuleType) or name in getattr(owner, "__dict__", {}):
            return None
        return base.then("member", name) if isinstance(owner, type) else base.then("type").then("member", name)


def by_name(value: Any) -> Access:
    """Return the path that the name of a class or function describes."""
    module, _, qualname = name_of(value).partition(":")
    access = Access(("module", module))
    for part in qualname.split("."):
        access = access.then("attr", part)
    return access


def _other_paths_of(cls: type) -> Iterator[Access]:
    """Yield where the standard library stores unnamed classes of the interpreter (generators)."""
    if cls.__module__ == "builtins":
        # `_collections_abc` has the name `collections.abc`, a module that has only the abstract classes.
        for place, module in (("types", types), ("_collections_abc", _collections_abc)):
            for name in [name for name, value in vars(module).items() if value is cls]:
                yield Access(("module", place)).then("attr", name)


def _name(source: Any) -> str:
    try:
        return str(source.name)
    except NotImplementedError:  # it has no path, such as an object that the frame makes
        return "a value of its own"
