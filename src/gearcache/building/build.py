"""Builds what one call needs: traces it, compiles its gears in parallel, and combines the finished ones."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field
from msgspec.structs import replace

from gearcache.building.digests import variant_digest
from gearcache.building.gear_jobs import GearJobs
from gearcache.building.request import BuildInterrupted, BuildRequest, BuildResult, BuiltVariant
from gearcache.building.trace_units import Units
from gearcache.building.tracer import Tracer
from gearcache.building.variants import built_variant
from gearcache.errors import CompileError
from gearcache.events import Event
from gearcache.ge_cache.backend import Artifact
from gearcache.ge_cache.capture.turns import in_turns
from gearcache.ge_cache.workers.pool import CompileOutcome, CompilePool
from gearcache.guards.gears.short_names import sizes_name
from gearcache.readable.graph import PACKED_GRAPH, STORED_GRAPH
from gearcache.telemetry.counters import Counters
from gearcache.telemetry.progress import BuildProgress


class _Compiled(Struct):
    """Results of the compilers so far: artifacts and seconds by job number, and errors."""

    artifacts: dict[int, Artifact] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    errors: list[CompileError] = field(default_factory=list)


def build(request: BuildRequest, counters: Counters) -> BuildResult:
    """Trace and compile; a gear that fails is reported and the others are kept.

    Raises `CaptureError` or `GearSpecError` if the method or the spec cannot be compiled at all, and `BuildInterrupted`
    with the finished variants at Ctrl-C.
    """
    request.backend.check_compiler()
    expected = max(1, len(request.spec.gears))
    tracer = Tracer(request, counters)
    units = Units(request, tracer)
    jobs, compiled, interrupted = GearJobs(request, units), _Compiled(), False
    names = request.names

    def report(gear: str, stage: str) -> None:
        # A graph for all gears is named after all of them.
        gear_names = (names.get(text) or sizes_name(text) for text in gear.split("; "))
        progress.update("; ".join(gear_names), stage)

    with (
        CompilePool(request.backend, min(request.jobs, expected), request.threads, request.compile_timeout) as pool,
        BuildProgress(request.name, expected, why=request.why, place=request.place) as progress,
    ):
        try:
            _take(pool.compile(in_turns(jobs), report), compiled, jobs, request.name, counters)
        except KeyboardInterrupt:
            interrupted, compiled.errors = True, []  # the interrupt reached compilers of this process as well
        finally:
            tracer.close()
    errors = [*compiled.errors, *units.errors]
    for error in errors:
        counters.note(Event("compile_failed", request.name, gear=error.gear, detail=error.cause))
    result = BuildResult(_variants(request, jobs, compiled, units), errors, tracer.findings)
    if interrupted:
        raise BuildInterrupted(result)
    return result


def trace(request: BuildRequest, counters: Counters) -> list[str]:
    """Trace without compiling; returns the digests of the variants that `build` would make, see `building.digests`.

    Raises as `build` does.
    """
    tracer = Tracer(request, counters)
    units = Units(request, tracer)
    jobs, traced = GearJobs(request, units), _Compiled()
    try:
        for number, _ in enumerate(in_turns(jobs)):
            traced.artifacts[number], traced.seconds[number] = Artifact({}), 0.0
    finally:
        tracer.close()
    if units.errors:
        raise units.errors[0]
    return [variant.digest for variant in _variants(request, jobs, traced, units)]


def _take(
    outcomes: Iterable[CompileOutcome], compiled: _Compiled, jobs: GearJobs, name: str, counters: Counters
) -> None:
    """Collect the results of the compilers as they arrive."""
    for outcome in outcomes:
        if outcome.artifact is not None:
            blobs = outcome.artifact.blobs
            if STORED_GRAPH not in blobs:
                blobs[PACKED_GRAPH] = jobs.packed[outcome.index]
            compiled.artifacts[outcome.index] = outcome.artifact
            compiled.seconds[outcome.index] = round(outcome.seconds, 3)
            size = sum(len(data) for data in blobs.values())
            gear = jobs.text(outcome.index)
            counters.note(Event("compile", name, gear=gear, seconds=outcome.seconds, bytes=size))
        elif outcome.error is not None:
            compiled.errors.append(outcome.error)


def _variants(request: BuildRequest, jobs: GearJobs, compiled: _Compiled, units: Units) -> list[BuiltVariant]:
    """Return a variant per unit, with the gears that were compiled."""
    members: dict[int, list[int]] = {}
    for number, gear in enumerate(jobs.gears):
        if gear.job in compiled.artifacts:
            members.setdefault(id(gear.unit), []).append(number)
    variants = []
    for numbers in members.values():
        gears = [jobs.gears[number] for number in numbers]
        stored_gears = [replace(gear.stored, seconds=compiled.seconds[gear.job]) for gear in gears]
        artifacts = [compiled.artifacts[gear.job] for gear in gears]
        variant = built_variant(request.bound, gears[0].unit, gears[0].graph, stored_gears, artifacts)
        variant = replace(variant, variant=replace(variant.variant, impossible=units.impossible, raising=units.raising))
        if request.compares:
            variant.digest = variant_digest(variant.variant, [jobs.digests[gear.job] for gear in gears])
        variants.append(variant)
    return variants
