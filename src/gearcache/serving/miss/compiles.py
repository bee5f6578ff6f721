"""Runs one compile of a binding: makes the request for the builder, and handles its result."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace

from gearcache.collection import rare_collection
from gearcache.errors import CompileError
from gearcache.guards.access import Access, Walker
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.checks import first_failure
from gearcache.guards.gears.parse import GearSpec
from gearcache.serving.call.call import Call
from gearcache.serving.call.resolved import ResolvedMethod
from gearcache.serving.find.variants import Variants
from gearcache.serving.miss.changes import Changes, changes_from
from gearcache.torch_release import is_tested
from gearcache.torch_state import Writes
from gearcache.torch_state import settings as torch_settings

if TYPE_CHECKING:
    from gearcache.building.request import BuildRequest, BuildResult, Findings
    from gearcache.ge_cache.capture.number_choice import NumberChoice

logger = logging.getLogger("gearcache")


class Compiles:
    """The compiles of one binding; each one uses the findings of the previous one."""

    def __init__(self, variants: Variants) -> None:
        self._variants = variants
        self._method, self._entry = variants.method, variants.entry
        self._findings: Findings | None = None
        #: The thread count of compiled code, if that of this process differs during a build.
        self.threads: int | None = None

    def compile(self, call: Call, spec: GearSpec, present: list[StoredVariant], why: str = "") -> BuildResult:
        """Compile the gears of a spec; at Ctrl-C, finished gears are stored beside `present`.

        `why` shows a waiting user why no stored graph serves the call. `MissingTorchNames` if this release of torch
        lacks something; `OutdatedKey` if the module or torch's global state is of another key, before or after.
        """
        self._variants.check_key()
        # A relaunch needs no tracer or compilers, and does not import the modules that use them. Names of torch are
        # checked first, because the import of those modules fails if one is missing.
        check_torch()
        from gearcache.building.build import build
        from gearcache.building.request import BuildInterrupted
        from gearcache.ge_cache.private_torch.fake import normal_modes

        _warn_unagreed(self._method)
        request = self._request(call, spec, present)  # reads the modes of the call
        place = "" if self._entry.is_in_memory else str(self._entry.layout.root)
        request = replace(request, why=why, place=place)
        try:
            with rare_collection(), normal_modes():
                writes = Writes.count
                result = build(request, self._method.counters)
        except BuildInterrupted as stop:
            if stop.result.variants:
                with contextlib.suppress(Exception):  # the interrupt takes precedence
                    self._variants.check_key(is_changed=Writes.count != writes)
                    self._entry.publish(stop.result, present)
            raise KeyboardInterrupt from None
        self._variants.check_key(is_changed=Writes.count != writes)
        self._findings = result.findings
        for error in result.errors:
            logger.error("%s", error)
            self._variants.history.lines.append(f"failed: {error}")
        if not result.variants:
            no_gear = CompileError(self._method.name, "of this call", "no gear was compiled")
            raise result.errors[0] if result.errors else no_gear
        return result

    def trace(self, call: Call, spec: GearSpec) -> list[str]:
        """Return the digests of the variants that a build would make, without compiling them.

        Raises as a build does.
        """
        check_torch()
        from gearcache.building.build import trace
        from gearcache.ge_cache.private_torch.fake import normal_modes

        request = self._request(call, spec, self._entry.read_again())
        with rare_collection(), normal_modes():
            return trace(request, self._method.counters)

    def _request(self, call: Call, spec: GearSpec, present: list[StoredVariant]) -> BuildRequest:
        from gearcache.building.request import BuildRequest, Findings

        method, settings, dynamic = self._method, self._method.settings, self._method.parameters.dynamic
        state: Any = dict(method.key.components)["state"]
        changes = Changes() if dynamic is False else changes_from(call.scope, self._variants.known.all())
        return BuildRequest(
            name=method.name,
            bound=method.bound,
            arguments=call.given,
            spec=spec,
            dynamic=bool(dynamic) and bool(spec.ranges) == bool(call.spec(method.spec).ranges),
            changing=_open_dims(changes, call, method),
            static_because=changes.static_because,
            numbers=self._numbers(changes),
            backend=method.backend,
            options=settings.options,
            decompositions=method.parameters.custom_decompositions,
            jobs=settings.jobs,
            compile_timeout=min(settings.compile_timeout, method.right.seconds),
            repeats=settings.repeats,
            settings={name: state[name] for name in torch_settings()},
            threads=self.threads or torch.get_num_threads(),
            findings=self._findings or Findings(),
            grad_modes=_grad_modes(present, call),
            fills=method.fills if settings.on_miss == "pad" else None,
            compares=method.right.is_granted,
        )

    def _numbers(self, changes: Changes) -> NumberChoice:
        """Return the choice: ints and floats that have changed, and with `dynamic=True` all ints of the arguments."""
        from gearcache.ge_cache.capture.number_choice import NumberChoice

        return NumberChoice(
            arguments=bool(self._method.parameters.dynamic),
            changing=frozenset(changes.numbers),
            constants=frozenset(changes.constants),
            declared=self._method.constants,
        )


def check_torch() -> None:
    """Raise `MissingTorchNames` if torch lacks names that we use, `UncalledProbes` if it does not call our probes."""
    version = str(torch.__version__)
    if not is_tested(version):
        from gearcache.torch_names import check_names

        check_names(version)
        from gearcache.building.canary import check_probes  # the import fails if torch lacks a name

        check_probes(version)


def _open_dims(changes: Changes, call: Call, method: ResolvedMethod) -> list[tuple[Access, int]]:
    """Return the dims that are to be dynamic because they have changed, except those with gears or a range.

    Without gears `dynamic=True` makes all dims dynamic anyway; beside gears the others are static until they change.
    """
    spec = call.spec(method.spec)
    # If the backend itself switches between gears in one graph, the other dims stay static.
    is_static = (
        method.parameters.dynamic is False or method.fills.values or (spec.axes and method.backend.takes_all_gears)
    )
    if is_static or (method.parameters.dynamic and not spec.axes):
        return []
    declared = (*spec.axes, *spec.ranges)
    return [
        (place, dim)
        for place, dim in dict.fromkeys(changes.dims)
        if not any(axis.dim == dim and axis.matches(place.text) for axis in declared)
    ]


def _grad_modes(present: list[StoredVariant], call: Call) -> tuple[bool, ...]:
    """Return the grad modes to build for if the method asks for the mode: also off, unless that is stored."""
    from gearcache.ge_cache.dependencies.tensor_reads import GRAD_MODE

    if not torch.is_grad_enabled():
        return (False,)
    for variant in present:
        other_checks = [check for check in variant.call_checks if check.access != GRAD_MODE]
        if len(other_checks) < len(variant.call_checks) and first_failure(other_checks, Walker(call.scope)) is None:
            return (True,)
    return (False, True)


#: The method that this process has warned about.
_warned: list[str] = []


def _warn_unagreed(method: ResolvedMethod) -> None:
    """Warn once per process that this rank compiles although the ranks of its job have not agreed."""
    world = method.ranks.world_size or 1
    if world == 1 or not method.serves or method.right.is_granted or _warned:
        return
    _warned.append(method.name)
    logger.warning(
        "`%s` is compiled by rank %s of %d by itself: ranks that hit go on meanwhile and wait in the next collective, "
        "until their watchdog ends the job; call gearcache.agree(model) on all ranks before the first collective",
        method.name,
        method.ranks.global_rank or 0,
        world,
    )
