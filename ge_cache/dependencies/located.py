"""Locate a traced function by a path that another process can follow."""

from __future__ import annotations

import types
from typing import Any

from gearcache.ge_cache.capture.source_paths import FrameNames, UnknownSourceClass, access_of
from gearcache.guards.access import FAULTS, Access, Walker
from gearcache.guards.evidence.constants import NotConstant
from gearcache.guards.evidence.names import name_of


def located(function: types.FunctionType, source: Any, names: FrameNames, walker: Walker) -> tuple[Any, Access] | None:
    """Return (identity, path) where the method finds a function; None when no path leads to it."""
    if source is None:
        return None
    try:
        access = access_of(source, names)
    except (UnknownSourceClass, NotConstant):
        return None
    member = _as_member(access, walker)
    call = access.then("type").then("member", "__call__")
    for candidate in (member, access, call):
        if candidate is not None and _leads_to(candidate, function, walker):
            if candidate is not access:
                owner = Access(candidate.root, candidate.steps[: _member_step(candidate)])
                return ("member", walker.resolve(owner), candidate.steps[_member_step(candidate) :]), candidate
            return ("path", candidate), candidate
    return None


def named(function: types.FunctionType, walker: Walker) -> tuple[Any, Access] | None:
    """Return (identity, path) of a function by its own name; None when the name leads elsewhere."""
    module, _, qualname = name_of(function).partition(":")
    access = Access(("module", module))
    if "<locals>" in qualname or module.startswith("torch._dynamo"):
        return None
    for part in qualname.split("."):
        try:
            step = "member" if isinstance(walker.resolve(access), type) else "attr"
        except FAULTS:
            return None
        access = access.then(step, part)
    for candidate in (access, access.then("attr", "fget"), access.then("attr", "func")):
        if _leads_to(candidate, function, walker):
            return ("named", candidate), candidate
    return None


def _member_step(access: Access) -> int:
    return next(index for index, (kind, _) in enumerate(access.steps) if kind == "member")


def _leads_to(access: Access, function: types.FunctionType, walker: Walker) -> bool:
    try:
        value = walker.resolve(access)
    except FAULTS:
        return False
    return getattr(getattr(value, "__func__", value), "__code__", None) is function.__code__


def _as_member(access: Access, walker: Walker) -> Access | None:
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
    if steps and steps[-1][0] == "attr":
        base = Access(access.root, steps[:-1])
        try:
            owner = walker.resolve(base)
        except FAULTS:
            return None
        if isinstance(owner, types.ModuleType) or steps[-1][1] in getattr(owner, "__dict__", {}):
            return None
        return (
            base.then("member", steps[-1][1])
            if isinstance(owner, type)
            else base.then("type").then("member", steps[-1][1])
        )
    return None
