"""One compile of a binding: what the builder is asked for, and what it gives."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace

from gearcache.collection import resumed_collection
from gearcache.errors import CompileError
from gearcache.guards.access import Access, Walker
from gearcache.guards.dispatch.variant import StoredVariant
from gearcache.guards.evidence.checks import first_failure
from gearcache.guards.gears.parse import GearSpec
from gearcache.serving.call import Call
from gearcache.serving.changes import Changes
from gearcache.serving.delayed_calls import DelayedCalls
from gearcache.serving.resolved import ResolvedMethod
from gearcache.serving.variants import Variants
from gearcache.telemetry.record import Record
from gearcache.torch_release import is_tested

if TYPE_CHECKING:
    from gearcache.building.request import BuildRequest, BuildResult, Findings
    from gearcache.ge_cache.capture.numbers import NumberChoice

logger = logging.getLogger("gearcache")


class Compiles:
    """The compiles of one binding; each one knows what the one before has found out."""

    def __init__(self, method: ResolvedMethod, variants: Variants, record: Record, delayed: DelayedCalls) -> None:
        self._method = method
        self._entry = variants.entry
        self._variants = variants
        self._history = record.history
        self._counters = record.counters
        self._delayed = delayed
        self._findings: Findings | None = None
        #: Threads that compiled code is for, where this process has another number for the time of a build.
        self.threads: int | None = None

    def compile(self, call: Call, spec: GearSpec, present: list[StoredVariant], why: str = "") -> BuildResult:
        """Compile the gears of a spec; at Ctrl-C, what was finished is stored beside `present`.

        `why` nothing that is stored does is for who waits. `MissingTorchNames` where torch is of a release that lacks
        something.
        """
        # A relaunch does without tracer and compilers, and without importing what drives them. Names of torch come
        # first: what drives them does not import where one is missing.
        check_torch()
        from gearcache.building.build import build
        from gearcache.building.request import BuildInterrupted
        from gearcache.ge_cache.private_torch.fake import normal_modes
        from gearcache.serving.alone import warn_alone

        warn_alone(self._method)
        request = self._request(call, spec, present)  # of the modes of the call
        place = "" if self._entry.is_in_memory else str(self._entry.layout.root)
        request = replace(request, why=why, place=place)
        try:
            with resumed_collection(), normal_modes():
                result = build(request, self._counters)
        except BuildInterrupted as stop:
            if stop.result.variants:
                with contextlib.suppress(Exception):  # the interrupt is what counts
                    self._entry.publish(stop.result, present)
            raise
        self._findings = result.findings
        for error in result.errors:
            logger.error("%s", error)
            self._history.lines.append(f"failed: {error}")
        if not result.variants:
            none = CompileError(self._method.name, "of this call", "no gear was compiled")
            raise result.errors[0] if result.errors else none
        return result

    def trace(self, call: Call, spec: GearSpec) -> list[str]:
        """Return the digests of the variants that a build would make, without compiling them.

        Raises as a build does.
        """
        check_torch()
        from gearcache.building.build import trace
        from gearcache.ge_cache.private_torch.fake import normal_modes

        request = self._request(call, spec, self._entry.read_again())
        with resumed_collection(), normal_modes():
            return trace(request, self._counters)

    def _request(self, call: Call, spec: GearSpec, present: list[StoredVariant]) -> BuildRequest:
        from gearcache.building.request import BuildRequest, Findings

        changes = self._delayed.changes(call, self._variants.known) if self._method.dynamic is not False else Changes()
        return BuildRequest(
            name=self._method.name,
            function=self._method.function,
            arguments=call.given,
            spec=spec,
            dynamic=bool(self._method.dynamic) and bool(spec.ranges) == bool(call.spec(self._method.spec).ranges),
            changing=_open_dims(changes, call, self._method),
            numbers=self._numbers(changes),
            backend=self._method.backend,
            options=self._method.settings.options,
            decompositions=self._method.decompositions,
            jobs=self._method.settings.jobs,
            compile_timeout=min(self._method.settings.compile_timeout, self._method.right.seconds),
            repeats=self._method.settings.repeats,
            threads=self.threads or torch.get_num_threads(),
            findings=self._findings or Findings(),
            mode=self._method.mode,
            grad_modes=_grad_modes(present, call),
            fills=self._method.fills if self._method.settings.on_miss == "pad" else None,
            compares=self._method.right.is_granted,
        )

    def _numbers(self, changes: Changes) -> NumberChoice:
        """Return which ints are to be numbers: those that have changed, and with `dynamic=True` all arguments."""
        from gearcache.ge_cache.capture.numbers import NumberChoice

        return NumberChoice(
            arguments=bool(self._method.dynamic),
            changing=frozenset(changes.ints),
            constants=frozenset(changes.constants),
            declared=self._method.constants,
        )


def check_torch() -> None:
    """Raise `MissingTorchNames` where torch lacks what is used, or does not call what is to be called."""
    version = str(torch.__version__)
    if not is_tested(version):
        from gearcache.torch_names import check_names

        check_names(version)
        from gearcache.building.canary import check_hooks  # does not import where a name is missing

        check_hooks(version)


def _open_dims(changes: Changes, call: Call, method: ResolvedMethod) -> list[tuple[Access, int]]:
    """Return the dims that are to be dynamic because they have changed: none that has gears or a range.

    Without gears `dynamic=True` makes all dims dynamic anyway; beside gears the others are static until they change.
    """
    spec = call.spec(method.spec)
    # One graph in which the backend itself switches between gears is static beside them.
    is_static = method.dynamic is False or method.fills.values or (spec.axes and method.backend.takes_all_gears)
    if is_static or (method.dynamic and not spec.axes):
        return []
    declared = (*spec.axes, *spec.ranges)
    return [
        (place, dim)
        for place, dim in dict.fromkeys(changes.dims)
        if not any(axis.dim == dim and axis.matches(place.text) for axis in declared)
    ]


def _grad_modes(present: list[StoredVariant], call: Call) -> tuple[bool, ...]:
    """Return the grad modes to build for where the method asks: off as well, unless that is stored."""
    from gearcache.ge_cache.dependencies.autograd_reads import GRAD_MODE

    if not torch.is_grad_enabled():
        return (False,)
    for variant in present:
        rest = [check for check in variant.call_checks if check.access != GRAD_MODE]
        if len(rest) < len(variant.call_checks) and first_failure(rest, Walker(call.scope)) is None:
            return (True,)
    return (False, True)
