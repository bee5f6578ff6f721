"""Data types of a build: the request (one call of a method under one set of options) and its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from msgspec import Struct, field

from gearcache.errors import CompileError
from gearcache.ge_cache.backend import Artifact, Backend
from gearcache.ge_cache.capture.number_choice import NumberChoice
from gearcache.guards.access import Access
from gearcache.guards.dispatch.fills import Fills
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.gears.parse import GearSpec, gear_text
from gearcache.guards.gears.short_names import short_names
from gearcache.serving.call.bound_method import BoundMethod
from gearcache.torch_state import settings


class Findings(Struct, frozen=True):
    """What traces of a method have shown; later traces start from it."""

    #: The places of ints that the frame writes.
    written_ints: frozenset[Access] = frozenset()
    #: Dynamo's names of parameters and buffers that the method replaces.
    unbound: frozenset[str] = frozenset()


class BuildRequest(Struct, frozen=True):
    """The request of a build: one call of a bound method under one set of options."""

    name: str
    bound: BoundMethod
    arguments: Mapping[str, Any]
    spec: GearSpec
    dynamic: bool
    #: Dims to make dynamic if the trace allows it, although `dynamic` is False or gears do not mention them.
    changing: list[tuple[Access, int]]
    #: Why a trace for such calls has failed with sizes that vary, so that this one begins with static sizes; or "".
    static_because: str
    #: Which ints are to be numbers, if the trace allows it.
    numbers: NumberChoice
    backend: Backend
    options: Mapping[str, Any]
    decompositions: Mapping[Any, Any] | None
    jobs: int
    #: Seconds after which the compile of a gear in a worker times out.
    compile_timeout: float
    #: The grad modes to build for, if the method asks: off unless that is stored, and on if the call has it on.
    grad_modes: tuple[bool, ...] = (False,)
    #: With `on_miss="pad"`: the values to pad with.
    fills: Fills | None = None
    #: Whether repeated operations are compiled once.
    repeats: bool = True
    #: The settings of torch to compile in: those of the key.
    settings: dict[str, Any] = field(default_factory=settings)
    #: The thread count of the compiled code.
    threads: int = field(default_factory=torch.get_num_threads)
    #: Whether to make digests that show whether another process would build the same.
    compares: bool = False
    #: The findings of earlier builds.
    findings: Findings = Findings()
    #: Shown to a user who waits: why no stored graph fits, and the folder of the graphs ("" if they cannot be stored).
    why: str = ""
    place: str = ""

    @property
    def names(self) -> dict[str, str]:
        """The short names of the gears, by text."""
        return short_names(gear_text(self.spec, gear) for gear in self.spec.gears)


class BuiltVariant(Struct):
    """A variant whose gears are compiled; `artifacts` are in the order of its gears."""

    variant: StoredVariant
    artifacts: list[Artifact]
    #: Equal if another process would store the same (`building.digests`); empty if it was not requested.
    digest: str = ""


class BuildResult(Struct):
    """The compiled variants, the failed gears, and the findings."""

    variants: list[BuiltVariant] = field(default_factory=list)
    errors: list[CompileError] = field(default_factory=list)
    findings: Findings = Findings()


class BuildInterrupted(KeyboardInterrupt):
    """Ctrl-C during a build; carries the finished variants."""

    def __init__(self, result: BuildResult) -> None:
        super().__init__()
        self.result = result
