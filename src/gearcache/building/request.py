"""What to build: one call of a method under one set of options; and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from msgspec import Struct, field

from gearcache.errors import CompileError
from gearcache.ge_cache.backend import Artifact, Backend
from gearcache.ge_cache.capture.numbers import NumberChoice
from gearcache.guards.access import Access
from gearcache.guards.dispatch.fills import Fills
from gearcache.guards.dispatch.variant import StoredVariant
from gearcache.guards.gears.parse import GearSpec, gear_text
from gearcache.guards.gears.short_names import short_names


class Findings(Struct, frozen=True):
    """What traces of a method have shown: later ones begin with it."""

    #: Where ints are that the frame writes.
    written_ints: frozenset[Access] = frozenset()
    #: Dynamo's names of parameters and buffers that the method replaces.
    unbound: frozenset[str] = frozenset()


class BuildRequest(Struct, frozen=True):
    """What to build: one call of a bound method under one set of options."""

    name: str
    function: Any
    arguments: Mapping[str, Any]
    spec: GearSpec
    dynamic: bool
    #: Dims to make dynamic where the trace allows it, although `dynamic` is False or gears say nothing of them.
    changing: list[tuple[Access, int]]
    #: Which ints are to be numbers, where the trace allows it.
    numbers: NumberChoice
    backend: Backend
    options: Mapping[str, Any]
    decompositions: Mapping[Any, Any] | None
    jobs: int
    #: Seconds that a worker may take for a gear.
    compile_timeout: float
    #: The mode of autograd that decorators put the method under, see `gearcache.serving.decorators`.
    mode: str = ""
    #: The grad modes to build for, where the method asks: that of the call, before it off.
    grad_modes: tuple[bool, ...] = (False,)
    #: With `on_miss="pad"`: what to fill with.
    fills: Fills | None = None
    #: Whether operations that come again and again are compiled once.
    repeats: bool = True
    #: Threads that the compiled code is for.
    threads: int = field(default_factory=torch.get_num_threads)
    #: Whether digests are made, which tell whether another process would build the same.
    compares: bool = False
    #: What earlier builds have shown.
    findings: Findings = Findings()
    #: For who waits: why nothing stored does, and the folder that will have the graphs, "" where none can.
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
    #: Equal where another process would store the same (`building.same`); empty where nobody asked.
    digest: str = ""


class BuildResult(Struct):
    """The variants that were compiled, the gears that failed, and findings."""

    variants: list[BuiltVariant] = field(default_factory=list)
    errors: list[CompileError] = field(default_factory=list)
    findings: Findings = Findings()


class BuildInterrupted(KeyboardInterrupt):
    """Ctrl-C during a build; carries what was finished before."""

    def __init__(self, result: BuildResult) -> None:
        super().__init__()
        self.result = result
