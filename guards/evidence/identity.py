"""Identify functions through all that they reach: decompositions, operators, what a graph holds untraced."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any

from gearcache.errors import UnkeyableValue
from gearcache.guards.dispatch.tensors.native import is_operator
from gearcache.guards.evidence.code import (
    closed_over,
    code_objects,
    function_plain,
    inner_values,
    is_library_file,
    is_users,
    is_versioned,
)
from gearcache.guards.evidence.constants import NotConstant, to_plain
from gearcache.guards.evidence.names import module_of, name_of


def decompositions_component(decompositions: Mapping[Any, Callable[..., Any]] | None) -> list[list[Any]]:
    """Return operator names with the data that identifies their decompositions.

    A decomposition runs while the graph is recorded, and no trace shows what it reads. So its code, defaults,
    closed-over values and the globals that it names count, through all user functions that it reaches. `UnkeyableValue`
    names a value among these that cannot be distinguished from another one.
    """
    return sorted(
        (
            [str(operator), described(function, f"the decomposition of {operator}")]
            for operator, function in (decompositions or {}).items()
        ),
        key=lambda item: str(item[0]),
    )


def described(function: Any, user: str, packages: Collection[str] = ()) -> Any:
    """Return plain data that identifies a function through all that it reaches; `user` names its owner in messages.

    `packages`: top-level packages beside torch and the standard library whose versions are in the key; their objects
    count by name. `UnkeyableValue` names a value that cannot be distinguished from another one.
    """
    return _Description(user, frozenset(packages)).of(function)


class _Description:
    """Plain data that differs whenever a value that a function uses would act differently."""

    def __init__(self, user: str, packages: frozenset[str]) -> None:
        self._user = user
        self._packages = packages
        self._seen_ids: set[int] = set()

    def of(self, value: Any) -> Any:
        """Describe any value."""
        if isinstance(value, functools.partial):
            parts = [self.of(item) for item in (value.func, *value.args)]
            return ["partial", parts, [[name, self.of(item)] for name, item in value.keywords.items()]]
        if isinstance(value, types.MethodType):
            return ["method", self.of(value.__func__), self.of(value.__self__)]
        if isinstance(value, types.FunctionType):
            return ["name", name_of(value)] if self._is_packaged(value) else self._of_function(value)
        if isinstance(value, (types.ModuleType, types.BuiltinFunctionType)) or is_operator(value):
            return ["name", str(value) if is_operator(value) else name_of(value)]
        if isinstance(value, type):
            library = module_of(value).partition(".")[0] in ("torch", "builtins") or self._is_packaged(value)
            functions = (
                [] if library else [item for item in vars(value).values() if isinstance(item, types.FunctionType)]
            )
            return ["class", name_of(value), [self.of(item) for item in functions]]
        try:
            return ["constant", to_plain(value)]
        except NotConstant:
            raise UnkeyableValue("functions", name_of(type(value)), f"{self._user} uses it") from None

    def _is_packaged(self, value: Any) -> bool:
        return module_of(value).partition(".")[0] in self._packages

    def _of_function(self, function: types.FunctionType) -> Any:
        plain = ["function", *function_plain(function)]
        if id(function) in self._seen_ids:
            return plain
        self._seen_ids.add(id(function))
        if is_versioned(function.__code__):
            inner = [item for item in inner_values(function) if is_users(item)]
            return [*plain, [self.of(item) for item in inner]] if inner else plain
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        used_values = [*defaults, *closed_over(function)]
        codes = code_objects(function.__code__)
        names = dict.fromkeys(name for code in codes for name in code.co_names)
        read_globals = [(name, function.__globals__[name]) for name in names if name in function.__globals__]
        for _, module in [
            item for item in read_globals if isinstance(item[1], types.ModuleType) and self._is_users(item[1])
        ]:
            read_globals += [(name, vars(module)[name]) for name in names if name in vars(module)]
        return [
            *plain,
            [self.of(value) for value in used_values],
            [[name, self.of(value)] for name, value in read_globals],
        ]

    def _is_users(self, module: types.ModuleType) -> bool:
        return not _is_library(module) and module.__name__.partition(".")[0] not in self._packages


def _is_library(module: types.ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is None or is_library_file(file)
