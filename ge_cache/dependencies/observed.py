"""Checks for the dependencies of a trace that Dynamo does not guard.

Dynamo guards little where a change is rare within one process: it does not compare the methods of a class, looks up
environment variables without a guard, and folds calls such as `torch.cuda.is_available()` into constants. Between two
processes all of these change, so the trace is watched and its findings become evidence.
"""

from __future__ import annotations

import builtins
import os
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from msgspec import Struct

from gearcache.errors import CaptureError, UnkeyableValue
from gearcache.ge_cache.capture.source_paths import FrameNames, UnknownSourceClass, access_of
from gearcache.ge_cache.dependencies.facts import Facts
from gearcache.ge_cache.dependencies.library_functions import check_tensors, library_checks, library_functions
from gearcache.ge_cache.dependencies.located import located, named
from gearcache.ge_cache.dependencies.observer import Observer
from gearcache.guards.access import FAULTS, Access, Scope, Walker
from gearcache.guards.evidence.checks import Check, observe
from gearcache.guards.evidence.code import code_objects, function_plain, is_versioned
from gearcache.guards.evidence.constants import NotConstant, to_plain
from gearcache.guards.evidence.members import is_library
from gearcache.guards.evidence.names import name_of

_MODULE_GLOBALS = "torch.nn.modules.module"
_GLOBAL_HOOKS = (
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
)


class TracedCode(Struct, frozen=True):
    """Everything traced: the method, all code that Dynamo entered, the graph, the frame's writes to classes."""

    method: Any  #: a `types.FunctionType`, which a type checker would bind
    codes: Iterable[types.CodeType]
    graph: torch.fx.GraphModule
    written: set[str]


class Covered:
    """The code of functions that are compared in memory.

    Equal code objects compare equal, even of two functions in two files when only one file may be edited: so a
    function's own code counts by identity. Code nested in a function is covered with it, and counts by equality: Dynamo
    reuses the instructions of equal code, and with them the nested code of the first one.
    """

    def __init__(self, function: types.CodeType) -> None:
        self._own_codes: dict[int, types.CodeType] = {}
        self._inner_codes: set[types.CodeType] = set()
        self.add(function)

    def add(self, function: types.CodeType) -> None:
        """Cover a function and the code nested in it."""
        self._own_codes[id(function)] = function
        self._inner_codes.update(code for code in code_objects(function) if code is not function)

    def __contains__(self, code: types.CodeType) -> bool:
        return id(code) in self._own_codes or code in self._inner_codes

    def __iter__(self) -> Iterator[types.CodeType]:
        yield from self._own_codes.values()
        yield from self._inner_codes


class Observed(Struct):
    """Checks of everything observed, and the code objects that they cover."""

    checks: list[Check]
    covered: Covered


def observed_checks(
    observer: Observer, facts: Facts, traced: TracedCode, type_paths: Iterable[Access], names: FrameNames, scope: Scope
) -> Observed:
    """Return the findings of an observer as checks that hold now. `type_paths` are the paths whose exact type is
    checked.

    The method's own code is in the key.
    """
    walker = Walker(scope)
    checks_by_key: dict[Any, Check] = _shadows(traced.method)
    covered = Covered(traced.method.__code__)
    functions = _method_path(traced.method, scope)
    for function, source in observer.functions:
        location = located(function, source, names, walker)
        kind = "function"
        if location is None:
            location, kind = named(function, walker), "definition"
        if location is not None:
            key, access = location
            checks_by_key.setdefault(key, observe(kind, access, walker.resolve(access)))
            functions[access] = function
            covered.add(function.__code__)
        checks_by_key |= _shadows(function)
    for name in sorted(observer.variables):
        access = Access(("environment", name))
        checks_by_key["environment", name] = Check("constant", access, to_plain(os.environ.get(name)))
    calls = [(function, source, ("call", None)) for function, source in [*observer.folded, *facts.calls]]
    calls += [(function, None, ("called_with", argument)) for function, argument in observer.assumed]
    for function, source, step in calls:
        access = _path(observer.method, function, source, names).then(*step)
        try:
            expected = to_plain(walker.resolve(access))
        except NotConstant as error:
            raise CaptureError(
                observer.method, f"the result of `{name_of(function)}` is not a constant but a {error}"
            ) from None
        checks_by_key["call", access] = Check("constant", access, expected)
    for name, device in sorted(observer.of_devices | _ambient_autocast(traced.graph)):
        access = _path(observer.method, getattr(torch, name.partition(":")[2]), None, names).then("called_with", device)
        checks_by_key["called_with", access] = Check("constant", access, to_plain(walker.resolve(access)))
    for function, source in [*observer.untraced, *facts.untraced]:
        access = _path(observer.method, function, source, names)
        try:
            checks_by_key["reached", access] = observe("reached", access, walker.resolve(access))
        except UnkeyableValue as error:
            raise CaptureError(observer.method, f"{error.detail} (a {error.type_name})") from None
    checks_by_key |= _ancestors(type_paths, walker)
    checks_by_key |= _module_calls()
    codes = {*covered, *traced.codes, *(function.__code__ for function, _ in observer.functions)}
    library = library_functions(observer.method, traced.graph.graph)
    names_read = facts.names(codes) | library.names
    check_tensors(observer.method, names_read, (function for function, _ in observer.functions))
    checks = [
        *library_checks(observer.method, library),
        *facts.checks(names, walker, names_read, functions, traced.written),
    ]
    return Observed([*checks_by_key.values(), *checks], covered)


def _method_path(method: types.FunctionType, scope: Scope) -> dict[Access, types.FunctionType]:
    """Return the path to the method on the class of its instance, where it is stored there unchanged."""
    instance = next(iter(scope.arguments), "")
    access = Access(("argument", instance)).then("type").then("member", method.__name__)
    try:
        return {access: method} if access.resolve(scope) is method else {}
    except FAULTS:
        return {}


def _ambient_autocast(graph: torch.fx.GraphModule) -> set[tuple[str, str]]:
    """Return the autocast questions of regions that name no dtype: `torch.get_autocast_dtype` of their device."""
    regions = [node for node in graph.graph.nodes if getattr(node.target, "__name__", "") == "_enter_autocast"]
    return {("torch:get_autocast_dtype", str(node.args[0])) for node in regions if node.args[1] is None}


def _path(method: str, function: Any, source: Any, names: FrameNames) -> Access:
    """Return a path to a function; `CaptureError` where neither its source nor its name leads to it."""
    if source is not None:
        try:
            return access_of(source, names)
        except (UnknownSourceClass, NotConstant):
            pass
    module, _, qualname = name_of(function).partition(":")
    if "<locals>" in qualname:
        raise CaptureError(method, f"it calls `{qualname}`, to which no path leads that another process could follow")
    access = Access(("module", module))
    for part in qualname.split("."):
        access = access.then("attr", part)
    return access


def _shadows(function: types.FunctionType) -> dict[Any, Check]:
    """Return checks that a module still has no global of the name of a builtin that its function reads."""
    namespace = function.__globals__
    module = namespace.get("__name__")
    if is_versioned(function.__code__) or not isinstance(module, str):
        return {}
    access = Access(("module", module)).then("attr", "__dict__")
    names = {name for code in code_objects(function.__code__) for name in code.co_names}
    return {
        ("shadow", module, name): Check("lacks", access, name)
        for name in names
        if hasattr(builtins, name) and name not in namespace
    }


def _ancestors(type_paths: Iterable[Access], walker: Walker) -> dict[Any, Check]:
    """Return a check of the base classes of each user class: `isinstance` and `super` depend on them."""
    checks: dict[Any, Check] = {}
    for access in type_paths:
        try:
            cls = type(walker.resolve(access))
        except FAULTS:
            continue
        if is_library(cls) or ("bases", cls) in checks:
            continue
        checks["bases", cls] = Check("bases", access.then("type"), [name_of(base) for base in cls.__mro__])
    return checks


def _module_calls() -> dict[Any, Check]:
    """Return checks of the code and hooks between the call of a module and its `forward`."""
    module = Access(("module", _MODULE_GLOBALS))
    checks = {
        ("hooks", name): observe("length", module.then("attr", name), getattr(torch.nn.modules.module, name))
        for name in _GLOBAL_HOOKS
    }
    for name in ("__call__", "_call_impl"):
        access = module.then("attr", "Module").then("attr", name)
        checks["module", name] = Check("function", access, function_plain(getattr(torch.nn.Module, name)))
    return checks
