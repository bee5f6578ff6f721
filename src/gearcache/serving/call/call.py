"""One call of a cached method, as seen by the code that looks for a graph to serve it."""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch

from gearcache.guards.access import Scope
from gearcache.guards.arguments import find_tensors, parameter_names
from gearcache.guards.gears.call_sizes import call_sizes, without
from gearcache.guards.gears.spec import GearSpec


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
        """Return the part of a spec that applies to this call: nothing about an argument that is None here."""
        absent = {name for name, value in self.given.items() if value is None}
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
