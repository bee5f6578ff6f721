"""Checks of the code that a trace entered, of the functions that it called untraced, and of all facts that it noted."""

from __future__ import annotations

import builtins
import os
import types
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import ModuleSpec
from typing import Any

import torch
from msgspec import Struct

from gearcache.errors import CaptureError, UnkeyableValue
from gearcache.ge_cache.dependencies.fact_checks import FactChecks
from gearcache.ge_cache.dependencies.library_functions import check_tensors, library_checks, library_functions
from gearcache.ge_cache.dependencies.log import TraceLog
from gearcache.ge_cache.dependencies.paths import Paths, by_name
from gearcache.ge_cache.private_torch import nodes as private_nodes
from gearcache.guards.access import Access, Walker
from gearcache.guards.dispatch.frame import named_tuple_of
from gearcache.guards.evidence.checks import Check, observe
from gearcache.guards.evidence.code import code_objects, function_plain, is_versioned
from gearcache.guards.evidence.constants import NotConstant, to_plain
from gearcache.guards.evidence.members import is_library
from gearcache.guards.evidence.names import name_of
from gearcache.interrupts import raise_interrupt

_MODULE_GLOBALS = "torch.nn.modules.module"
_GLOBAL_HOOKS = (
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
)
#: Names that are looked up although no traced code mentions them.
_UNMENTIONED = frozenset({"_call_impl", "_missing_", "_slow_forward", "_wrapped_call_impl", "forward"})


class TracedCode(Struct, frozen=True):
    """Everything traced: the method, all code that Dynamo entered, the graph."""

    method: Any  #: a `types.FunctionType`, which a type checker would bind
    codes: Iterable[types.CodeType]
    graph: torch.fx.GraphModule


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
    #: Whether they compare what a class defines by a name.
    compares: Callable[[type, str], bool]


def observed_checks(log: TraceLog, paths: Paths, traced: TracedCode, type_paths: Iterable[Access]) -> Observed:
    """Return what a trace noted of the process as checks that hold now. `type_paths` are the paths whose exact type is
    checked.

    The method's own code is in the key.
    """
    covered = Covered(traced.method.__code__)
    checks_by_key: dict[Any, Check] = {}
    for function, source in log.of("function"):
        location, kind = paths.of_function(function, source), "function"
        if location is None:
            location, kind = paths.of_named(function), "definition"
        if location is not None:
            key, access = location
            checks_by_key.setdefault(key, observe(kind, access, paths.walker.resolve(access)))
            covered.add(function.__code__)
    traced_functions = list(dict.fromkeys(function for function, _ in log.of("function")))
    checks = [check for function in (traced.method, *traced_functions) for check in _shadows(function)]
    checks += checks_by_key.values()
    for name in sorted(name for (name,) in log.distinct("environment")):
        checks.append(Check("constant", Access(("environment", name)), to_plain(os.environ.get(name))))
    for function, source, step in log.of("call"):
        access = _path(function, source, paths).then(*step)
        result = paths.walker.resolve(access)
        try:
            is_found = isinstance(result, ModuleSpec)  # of a package, wherever it is installed
            checks.append(Check("not_none", access, True) if is_found else Check("constant", access, to_plain(result)))
        except NotConstant as error:
            raise CaptureError(
                log.method, f"the result of `{name_of(function)}` is not a constant but a {error}"
            ) from None
    for name, device in sorted({*log.of("state of a device"), *_ambient_autocast(traced.graph)}):
        access = by_name(getattr(torch, name)).then("called_with", device)
        checks.append(Check("constant", access, to_plain(paths.walker.resolve(access))))
    for function, source in log.of("untraced"):
        access = _path(function, source, paths)
        try:
            checks.append(observe("reached", access, paths.walker.resolve(access)))
        except UnkeyableValue as error:
            cause = (
                f"it calls `{name_of(function)}`, which a trace does not enter (`torch.compiler.allow_in_graph`), and "
                f"no other process can compare what that uses: {error.detail} (a {error.type_name})"
            )
            raise CaptureError(log.method, cause) from None
    checks += [*_ancestors(type_paths, paths.walker), *_module_calls()]
    codes = {*covered, *traced.codes, *(function.__code__ for function in traced_functions)}
    library = library_functions(log.method, traced.graph.graph)
    names = _names_read(log, codes) | library.names
    check_tensors(log.method, names, traced_functions)
    facts = FactChecks(log, paths)
    checks += [*library_checks(log.method, library), *facts.checks(names)]
    for code in facts.compared_code():
        covered.add(code)
    return Observed(checks, covered, facts.compares)


def _names_read(log: TraceLog, codes: Iterable[types.CodeType]) -> set[str]:
    """Return the names that a trace of some code may have looked up."""
    asked = {name for (name,) in log.of("name") if isinstance(name, str)}
    return asked | _UNMENTIONED | {name for code in codes for name in _names_in(code)}


def _names_in(code: types.CodeType) -> Iterable[str]:
    """Yield the names that some code may look up: those that it reads, and texts that it might pass on."""
    for code_object in code_objects(code):
        yield from code_object.co_names
        for constant in code_object.co_consts:
            for text in constant if isinstance(constant, tuple) else (constant,):
                if type(text) is str and len(text) < 256:
                    yield from (part for part in text.split(".") if part.isidentifier())


def _ambient_autocast(graph: torch.fx.GraphModule) -> set[tuple[str, str]]:
    """Return the autocast questions of regions that name no dtype: `torch.get_autocast_dtype` of their device."""
    regions = [node for node in graph.graph.nodes if private_nodes.enters_autocast(node)]
    return {("get_autocast_dtype", str(node.args[0])) for node in regions if node.args[1] is None}


def _path(function: Any, source: Any, paths: Paths) -> Access:
    """Return a path to a function; `CaptureError` where neither its source nor its name leads to it."""
    access = paths.find(source)
    if access is not None:
        return access
    qualname = name_of(function).partition(":")[2]
    if "<locals>" in qualname:
        cause = f"it calls `{qualname}`, to which no path leads that another process could follow"
        raise CaptureError(paths.method, cause)
    return by_name(function)


def _shadows(function: types.FunctionType) -> list[Check]:
    """Return checks that a module still has no global of the name of a builtin that its function reads."""
    namespace = function.__globals__
    module = namespace.get("__name__")
    if is_versioned(function.__code__) or not isinstance(module, str):
        return []
    access = Access(("module", module)).then("attr", "__dict__")
    names = {name for code in code_objects(function.__code__) for name in code.co_names}
    return [Check("lacks", access, name) for name in names if hasattr(builtins, name) and name not in namespace]


def _ancestors(type_paths: Iterable[Access], walker: Walker) -> Iterable[Check]:
    """Return a check of the base classes of each user class: `isinstance` and `super` depend on them."""
    checks: dict[type, Check] = {}
    for access in type_paths:
        try:
            cls = type(walker.resolve(access))
        except Exception as error:
            raise_interrupt(error)
            continue
        if not is_library(cls) and cls not in checks:
            checks[cls] = Check("bases", access.then("type"), [name_of(base) for base in cls.__mro__])
    return checks.values()


def _module_calls() -> Iterator[Check]:
    """Yield checks of the code and hooks between the call of a module and its `forward`."""
    module = Access(("module", _MODULE_GLOBALS))
    for name in _GLOBAL_HOOKS:
        yield observe("length", module.then("attr", name), getattr(torch.nn.modules.module, name))
    for name in ("__call__", "_call_impl"):
        access = module.then("attr", "Module").then("attr", name)
        yield Check("function", access, function_plain(getattr(torch.nn.Module, name)))


def result_class_checks(code: types.CodeType) -> list[Check]:
    """Return checks that the classes of the named tuples in a frame still have the same fields and constructor."""
    checks = []
    for constant in [constant for inner in code_objects(code) for constant in inner.co_consts]:
        cls: Any = named_tuple_of(constant)
        if cls is not None:
            access = by_name(cls)
            checks.append(Check("constant", access.then("attr", "_fields"), to_plain(cls._fields)))
            checks.append(Check("function", access.then("attr", "_make"), function_plain(constant)))
    return checks
