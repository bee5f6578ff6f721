"""One call of a cached method, as seen by the code that looks for a graph, and the places of its arguments."""

from __future__ import annotations

import enum
import inspect
import re
import types
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch

from gearcache.guards.access import Scope
from gearcache.guards.arguments import find_tensors, parameter_names
from gearcache.guards.gears.call_sizes import call_sizes, without
from gearcache.guards.gears.spec import GearSpec


class Given(enum.Enum):
    """Stands for an argument that a call does not give; to a decorator, None is a value."""

    NOT = "not given"

    def __repr__(self) -> str:
        return "<not given>"


def is_absent(value: Any) -> bool:
    """Whether an argument is None or not given: nothing is said about its dims then."""
    return value is None or value is Given.NOT


class Call:
    """The arguments of one call, the scope of its access paths, and the stance of `torch.compiler.set_stance`."""

    def __init__(
        self,
        function: types.MethodType,
        arguments: Mapping[str, Any],
        stance: str = "default",
        *,
        waits: bool = True,
        is_run: bool = False,
    ) -> None:
        #: By parameter name, the instance first, defaults applied.
        self.arguments = arguments
        self.scope = scope_of(function, arguments)
        self.stance = stance
        #: Whether to wait for a build, even with `on_miss="background"`.
        self.waits = waits
        #: Whether the call is run afterwards, and not just prepared.
        self.is_run = is_run

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors among the arguments by path, see `gearcache.guards.arguments.find_tensors`."""
        return find_tensors(self.arguments)

    @property
    def given(self) -> dict[str, Any]:
        """The arguments without the instance."""
        instance = next(iter(self.arguments))
        return {name: value for name, value in self.arguments.items() if name != instance}

    def spec(self, spec: GearSpec) -> GearSpec:
        """Return the part of a spec that applies to this call: nothing about an argument that is absent here."""
        absent = {name for name, value in self.given.items() if is_absent(value)}
        return without(spec, absent) if absent else spec

    def sizes(self, spec: GearSpec) -> tuple[int, ...]:
        """Return one size per geared dim; fewer if an argument lacks the dim."""
        return call_sizes(spec, self.tensors)


def scope_of(function: types.MethodType, arguments: Mapping[str, Any]) -> Scope:
    """Return the scope of access paths for a call of a bound method with some arguments."""
    method: types.FunctionType = function.__func__  # type: ignore[assignment]
    closure = dict(zip(method.__code__.co_freevars, method.__closure__ or (), strict=True))
    instance = {parameter_names(function)[0]: function.__self__}
    return Scope({**instance, **arguments}, method.__globals__, closure)


def at_their_places(
    values: Mapping[str, Any] | None, function: types.MethodType, arguments: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return a mapping of argument paths; paths to arguments behind a wrapper are changed to their places in a call.

    `input_ids` is `kwargs['input_ids']` in a call by keyword, and `args[0]` in one by position. A path that begins with
    a parameter of the wrapper itself, or with a name that the call does not give, is not changed.
    """
    if not values:
        return dict(values) if values is not None else None
    return {_place(path, function, arguments): value for path, value in values.items()}


def place_of_argument(name: str, function: types.MethodType, arguments: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Return the path and the value of the argument of a name in a call; None if the call does not give it."""
    outer = inspect.signature(function.__func__, follow_wrapped=False).parameters
    if name in outer:
        return (name, arguments[name]) if name in arguments else None
    kinds = {parameter.kind: parameter.name for parameter in outer.values()}
    by_keyword = kinds.get(inspect.Parameter.VAR_KEYWORD)
    if by_keyword is not None and name in arguments[by_keyword]:
        return f"{by_keyword}[{name!r}]", arguments[by_keyword][name]
    by_position = kinds.get(inspect.Parameter.VAR_POSITIONAL)
    inner = list(inspect.signature(function.__func__).parameters)
    if by_position is not None and name in inner:
        index = inner.index(name) - list(outer).index(by_position)
        if 0 <= index < len(arguments[by_position]):
            return f"{by_position}[{index}]", arguments[by_position][index]
    return None


def _place(path: str, function: types.MethodType, arguments: Mapping[str, Any]) -> str:
    match = re.match(r"\w+", path)
    if match is None or match[0] in inspect.signature(function.__func__, follow_wrapped=False).parameters:
        return path
    place = place_of_argument(match[0], function, arguments)
    return path if place is None else place[0] + path[match.end() :]
