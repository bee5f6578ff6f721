"""One call of a cached method, as seen by the code that looks for a graph."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch

from gearcache.guards.arguments import find_tensors
from gearcache.guards.gears.spec import GearSpec
from gearcache.serving.call.bound_method import BoundMethod


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
        method: BoundMethod,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        waits: bool = True,
        is_run: bool = False,
    ) -> None:
        """Raises the `TypeError` of the method for arguments that it does not take."""
        self.signature = method.signature()
        #: By parameter name, the instance first, defaults applied.
        self.arguments = self.signature.bind(args, kwargs)
        self.scope = method.scope(self.arguments)
        #: What only prepares a call may compile in any stance.
        self.stance = "default"
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
        from gearcache.guards.gears.call_sizes import without  # a hit does not need it

        absent = {name for name, value in self.given.items() if is_absent(value)}
        return without(spec, absent) if absent else spec

    def sizes(self, spec: GearSpec) -> tuple[int, ...]:
        """Return one size per geared dim; fewer if an argument lacks the dim."""
        from gearcache.guards.gears.call_sizes import call_sizes

        return call_sizes(spec, self.tensors)

    def at_their_places(self, values: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return a mapping of argument paths; paths to arguments behind a wrapper become their places here."""
        return self.signature.at_their_places(values, self.arguments)
