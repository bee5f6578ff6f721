"""The cold path: trace a call, plan its gears, compile them, and return variants ready to be stored."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gearcache.call_sizes import call_sizes, enlarged_call, like_dims, like_tensor, range_dims
from gearcache.errors import CaptureError, CompileError, GearSpecError, UncacheableGuard
from gearcache.events import Event
from gearcache.ge_cache import _compat_dynamo, _compat_shapes
from gearcache.ge_cache.all_gears import all_gears_graph
from gearcache.ge_cache.aten import encode_graph
from gearcache.ge_cache.backend import Artifact, Backend, CompileJob
from gearcache.ge_cache.capture import Capture, capture_method
from gearcache.ge_cache.dynamic import dynamic_gear
from gearcache.ge_cache.frame_references import frame_references
from gearcache.ge_cache.gear_plan import PlannedGear, gear_options, matching_inputs, plan_gears
from gearcache.ge_cache.numbers import number_results
from gearcache.ge_cache.specialise import GearGraph, input_spec, lift_attributes, order_inputs, trace_gear
from gearcache.ge_cache.symbols import Symbols
from gearcache.ge_cache.workers import CompilePool
from gearcache.guards.access import Access
from gearcache.guards.arguments import find_tensors, parameter_names, replace_tensors
from gearcache.guards.checks import Check
from gearcache.guards.evidence import evidence_tree
from gearcache.guards.frame import UnstorableConstant, encode_code
from gearcache.guards.gears import GearSpec, gear_text
from gearcache.guards.padding import Fills
from gearcache.guards.sources import UnknownSource, record_sources
from gearcache.guards.variant import StoredGear, StoredInput, StoredVariant
from gearcache.progress import BuildProgress
from gearcache.readable_graph import PACKED_GRAPH, STORED_GRAPH, pack_graph
from gearcache.stats import Counters

logger = logging.getLogger("gearcache")


@dataclass(frozen=True)
class BuildRequest:
    """What to build: one call of a bound method under one set of options."""

    name: str
    function: Any
    arguments: Mapping[str, Any]
    spec: GearSpec
    dynamic: bool
    #: Dims to make dynamic where the trace allows it, although `dynamic` is False.
    changing: list[tuple[torch.Tensor, int]]
    backend: Backend
    options: Mapping[str, Any]
    decompositions: Mapping[Any, Any] | None
    jobs: int
    #: With `on_miss="pad"`: what to fill with.
    fills: Fills | None = None
    #: Ints that earlier builds found to be no mere counters (Dynamo's names); added to.
    fixed_ints: set[str] = field(default_factory=set)


@dataclass
class BuiltVariant:
    """A variant whose gears are compiled; `artifacts` are in the order of its gears."""

    variant: StoredVariant
    artifacts: list[Artifact]


@dataclass
class BuildResult:
    """The variants that were compiled, the gears that failed, and those of the spec that cannot exist."""

    variants: list[BuiltVariant] = field(default_factory=list)
    errors: list[CompileError] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)


class BuildInterrupted(KeyboardInterrupt):
    """Ctrl-C during a build; carries what was finished before."""

    def __init__(self, result: BuildResult) -> None:
        super().__init__()
        self.result = result


@dataclass
class _Unit:
    """One capture and the gears to compile from it."""

    capture: Capture
    lifted: torch.fx.GraphModule
    gears: list[tuple[str, Any]]
    frame: dict[str, Any] = field(default_factory=dict)
    references: dict[str, list[str]] = field(default_factory=dict)
    padding: dict[str, Any] | None = None

    def check_storable(self) -> None:
        """Encode the frame and look the sources up, so that what cannot be stored fails before any compile."""
        capture = self.capture
        try:
            self.frame = encode_code(capture.frame_code)
            record_sources(capture.traced_code)
        except UnstorableConstant as error:
            raise CaptureError(capture.method, f"its frame holds a constant of type {error}") from None
        except UnknownSource as error:
            raise UncacheableGuard(capture.method, "source", str(error), "its code can be found in no file") from None
        self.references = frame_references(
            capture.method, capture.frame_code, capture.graph_name, capture.imports, capture.frame_globals
        )


def build(request: BuildRequest, counters: Counters) -> BuildResult:
    """Trace and compile; a gear that fails is reported and the others are kept.

    `CaptureError` or `GearSpecError` when the method or the spec cannot be compiled at all, `BuildInterrupted` with
    what was finished at Ctrl-C.
    """
    request.backend.check_compiler()
    expected = max(1, len(request.spec.gears))
    with (
        CompilePool(request.backend, min(request.jobs, expected), torch.get_num_threads()) as pool,
        BuildProgress(request.name, expected) as progress,
    ):
        tracer = _Tracer(request, counters)
        units: list[_Unit] = []
        #: Unit, graph and stored form of every gear, and the job whose artifact it uses.
        owners: list[tuple[int, GearGraph, StoredGear, int]] = []

        def jobs() -> Iterator[CompileJob]:
            for unit in tracer.units():
                unit.check_storable()
                units.append(unit)
                one_graph = request.backend.takes_all_gears and len(unit.gears) > 1
                for text, gear in unit.gears:
                    graph, stored = _trace(request, unit, text, gear)
                    owners.append((len(units) - 1, graph, stored, len(packed)))
                    if not one_graph:
                        job = _job(request, unit.capture, text, graph)
                        packed.append(pack_graph(job.graph))
                        yield job
                if one_graph:
                    job = _all_gears_job(request, unit)
                    packed.append(pack_graph(job.graph))
                    yield job

        interrupted = False
        finished: dict[int, Artifact] = {}
        seconds: dict[int, float] = {}
        packed: list[bytes] = []
        errors: list[CompileError] = []
        try:
            for outcome in pool.compile(jobs(), progress.update):
                if outcome.artifact is not None:
                    if STORED_GRAPH not in outcome.artifact.blobs:
                        outcome.artifact.blobs[PACKED_GRAPH] = packed[outcome.index]
                    finished[outcome.index] = outcome.artifact
                    seconds[outcome.index] = round(outcome.seconds, 3)
                    size = sum(len(data) for data in outcome.artifact.blobs.values())
                    gear = next(stored.text for _, _, stored, job in owners if job == outcome.index)
                    counters.note(Event("compile", request.name, gear=gear, seconds=outcome.seconds, bytes=size))
                elif outcome.error is not None:
                    errors.append(outcome.error)
        except KeyboardInterrupt:
            interrupted, errors = True, []  # the interrupt reached the compilers as well
    errors += tracer.errors
    for error in errors:
        counters.note(Event("compile_failed", request.name, gear=error.gear, detail=error.cause))
    built = []
    for number, unit in enumerate(units):
        members = [owner for owner in owners if owner[0] == number and owner[3] in finished]
        if members:
            gears = [replace(stored, seconds=seconds[job]) for _, _, stored, job in members]
            artifacts = [finished[job] for _, _, _, job in members]
            built.append(_variant(request, unit, members[0][1], gears, artifacts))
    result = BuildResult(built, errors, tracer.impossible)
    if interrupted:
        raise BuildInterrupted(result)
    return result


class _Tracer:
    """Makes the captures that the gears of one call need: one, and one more for each gear that breaks it."""

    def __init__(self, request: BuildRequest, counters: Counters) -> None:
        self._request = request
        self._counters = counters
        self._signature = inspect.signature(request.function)
        #: Dynamo's names of ints that are kept symbolic.
        self._numbers: tuple[str, ...] = ()
        self.errors: list[CompileError] = []
        self.impossible: list[str] = []

    def units(self) -> Iterator[_Unit]:
        """Yield captures with their gears, the call's own first."""
        spec = self._request.spec
        if not spec.axes:
            yield self._ungeared_unit()
            return
        capture, planned = self._geared_capture()
        possible = {gear.sizes for gear in planned}
        self.impossible = [gear_text(spec, gear) for gear in spec.gears if gear not in possible]
        symbols = Symbols(capture.shape_env, capture.unbacked)
        lifted = lift_attributes(capture)
        input_shape, dynamic_dims = gear_options(capture, symbols, planned)
        logger.info("%s: ge.inputShape=%s ge.dynamicDims=%s", capture.method, input_shape, dynamic_dims)
        if self._request.fills is not None:
            yield from self._padded_units(capture, planned)
            return
        covered = [gear for gear in planned if gear.broken is None and not spec.dynamic_axes]
        if covered:
            yield _Unit(capture, lifted, [(gear.text(spec), gear) for gear in covered])
        yield from self._own_units(capture, symbols, [gear for gear in planned if gear not in covered])

    def _own_units(self, capture: Capture, symbols: Symbols, gears: list[PlannedGear]) -> Iterator[_Unit]:
        """Yield a static capture for each gear that a capture does not cover."""
        for gear in gears:
            text, why = gear.text(self._request.spec), gear.broken or "it has dynamic dims"
            logger.info("%s: gear %s needs a trace of its own (%s)", capture.method, text, why)
            unit = self._own_capture(capture, symbols, gear)
            if unit is not None:
                yield unit

    def _padded_units(self, capture: Capture, planned: list[PlannedGear]) -> Iterator[_Unit]:
        """Yield captures with symbolic dims and a plan for padding, as many as cover the gears of at least 2."""
        spec = self._request.spec
        if spec.dynamic_axes:
            raise GearSpecError(f"`{capture.method}`: on_miss='pad' needs gears for all dims; the spec has ranges")
        rest, first = planned, capture
        while rest:
            symbols = Symbols(capture.shape_env, capture.unbacked)
            covered = [gear for gear in planned if gear.broken is None and gear.sizes in [item.sizes for item in rest]]
            if covered:
                unit = _Unit(capture, lift_attributes(capture), [(gear.text(spec), gear) for gear in covered])
                unit.padding = self._padding_plan(unit, symbols, covered)
                yield unit
            elif capture is first:
                raise GearSpecError(f"`{capture.method}`: on_miss='pad' finds no gear that the trace leaves symbolic")
            done = [gear.sizes for gear in covered]
            rest = [gear for gear in rest if gear.sizes not in done]
            symbolic = [gear for gear in rest if gear.assignment and min(gear.sizes) >= 2]
            if not covered or not symbolic:
                yield from self._own_units(capture, symbols, rest)
                return
            wanted = symbolic[0]
            logger.info("%s: gear %s needs a trace of its own (%s)", capture.method, wanted.text(spec), wanted.broken)
            capture, planned = self._planned_capture(self._resized(capture, symbols, wanted.assignment))

    def _capture(self, arguments: Mapping[str, Any], *, dynamic: bool) -> Capture:
        capture = self._trace_once(arguments, dynamic, self._numbers)
        fresh = tuple(name for name in capture.written_ints if name not in self._request.fixed_ints)
        if fresh:
            try:
                numbers = tuple(dict.fromkeys((*self._numbers, *fresh)))
                capture, self._numbers = self._trace_once(arguments, dynamic, numbers), numbers
            except CaptureError as error:
                logger.info("%s: each value of %s has a graph of its own: %s", self._request.name, fresh, error.cause)
                self._request.fixed_ints.update(fresh)
        return capture

    def _trace_once(self, arguments: Mapping[str, Any], dynamic: bool, numbers: tuple[str, ...]) -> Capture:
        begin = time.monotonic()
        positional, keywords = _call_of(self._signature, arguments)
        name, function = self._request.name, self._request.function
        try:
            return capture_method(function, positional, keywords, method=name, dynamic=dynamic, numbers=numbers)
        finally:
            self._counters.note(Event("trace", name, seconds=time.monotonic() - begin))

    def _padding_plan(self, unit: _Unit, symbols: Symbols, covered: list[PlannedGear]) -> dict[str, Any]:
        """Prove that calls between gears may be padded; `GearSpecError` where that is not shown."""
        from gearcache.ge_cache.padding import padded_symbols, padding_plan, patterns_of_one, same_program

        request, capture = self._request, unit.capture
        assert request.fills is not None
        wanted = padded_symbols(capture, symbols, [gear.assignment for gear in covered], request.fills)
        plan = padding_plan(capture, unit.lifted, symbols, request.decompositions, wanted)
        for pattern in patterns_of_one(wanted):
            try:
                own = self._capture(self._resized(capture, symbols, pattern), dynamic=False)
            except CaptureError as error:
                logger.info("%s: a size of 1 cannot be padded: %s", capture.method, error)
                continue
            if same_program(capture, own, symbols, pattern):
                plan["ones"].append(sorted(str(symbol) for symbol in pattern))
        return plan

    def _resized(self, capture: Capture, symbols: Symbols, assignment: Mapping[Any, int]) -> Mapping[str, Any]:
        """Return the call's arguments with tensors of the sizes that a trace gives them."""
        wanted = {
            id(item.example): like_tensor(item.example, [symbols.value(size, assignment) for size in item.sizes])
            for item in capture.inputs
            if item.access.root[0] == "argument"
        }
        given = find_tensors(self._request.arguments)
        originals = {
            id(given[item.access.text]): wanted[id(item.example)]
            for item in capture.inputs
            if item.access.text in given and id(item.example) in wanted
        }
        resized: Mapping[str, Any] = replace_tensors(dict(self._request.arguments), wanted | originals)
        return resized

    def _ungeared_unit(self) -> _Unit:
        """Trace with all dims dynamic, or only those of a declared range, or none."""
        request = self._request
        if request.spec.ranges:
            capture = self._ranged_capture(request.arguments)
        else:
            with _compat_dynamo.marked_dynamic(request.changing):
                capture = self._capture(request.arguments, dynamic=request.dynamic)
        if request.backend.name != "eager" and any(size < 2 for size in capture.unbacked.values()):
            # Compilers take every symbol for at least 2: a smaller size gets a graph of its own.
            with _compat_shapes.unmarked(find_tensors(request.arguments).values()):
                capture = self._capture(request.arguments, dynamic=False)
        return _Unit(capture, lift_attributes(capture), [("", None)])

    def _ranged_capture(self, arguments: Mapping[str, Any]) -> Capture:
        """Trace with the dims of a declared range dynamic (sizes 0 and 1 stay static) and all others static."""
        spec = self._request.spec
        with _compat_dynamo.marked_dynamic(range_dims(spec, arguments)):
            capture = self._capture(arguments, dynamic=False)
        for axis in spec.ranges:
            matching_inputs(capture, axis)
        return capture

    def _geared_capture(self) -> tuple[Capture, list[PlannedGear]]:
        """Trace at the call's own sizes, or, when those hold a 0 or 1, at another gear's."""
        spec, arguments = self._request.spec, self._request.arguments
        if any(size < 2 for size in call_sizes(spec, arguments)):
            enlarged = enlarged_call(spec, arguments)
            if enlarged is not None:
                try:
                    capture, planned = self._planned_capture(enlarged)
                except (CaptureError, GearSpecError) as error:
                    logger.debug("%s: no trace at another gear's sizes: %s", self._request.name, error)
                else:
                    if _fits(capture, planned, arguments, spec, may_pad=self._request.fills is not None):
                        return capture, planned
        return self._planned_capture(arguments)

    def _planned_capture(self, arguments: Mapping[str, Any]) -> tuple[Capture, list[PlannedGear]]:
        """Trace with only those dims symbolic that have a geared dim's size, which is three times as quick.

        Where that freezes a geared dim (another dim is a multiple of it), trace again with all dims symbolic.
        """
        spec = self._request.spec
        try:
            with _compat_dynamo.marked_dynamic(like_dims(spec, arguments, self._request.function.__self__)):
                capture = self._capture(arguments, dynamic=False)
            planned = plan_gears(capture, Symbols(capture.shape_env, capture.unbacked), spec)
            if any(gear.broken is None for gear in planned) or all(gear.assignment for gear in planned):
                return capture, planned
        except CaptureError as error:
            logger.debug("%s: no trace with few symbolic dims: %s", self._request.name, error)
        capture = self._capture(arguments, dynamic=True)
        return capture, plan_gears(capture, Symbols(capture.shape_env, capture.unbacked), spec)

    def _own_capture(self, capture: Capture, symbols: Symbols, gear: PlannedGear) -> _Unit | None:
        """Trace one gear with static sizes, from arguments of its sizes."""
        spec, text = self._request.spec, gear.text(self._request.spec)
        if call_sizes(spec, self._request.arguments) == gear.sizes:
            arguments: Mapping[str, Any] = self._request.arguments
        else:
            if not gear.assignment:
                logger.info("%s: gear %s will be compiled at its first call", capture.method, text)
                return None
            arguments = self._resized(capture, symbols, gear.assignment)
        try:
            own = self._ranged_capture(arguments)
        except CaptureError as error:
            self.errors.append(CompileError(capture.method, text, error.cause))
            return None
        return _Unit(own, lift_attributes(own), [(text, None)])


def _trace(request: BuildRequest, unit: _Unit, text: str, gear: PlannedGear | None) -> tuple[GearGraph, StoredGear]:
    capture = unit.capture
    symbols = Symbols(capture.shape_env, capture.unbacked)
    is_dynamic = gear is None and any(symbols.symbols_of(size) for item in capture.inputs for size in item.sizes)
    assignment = gear.assignment if gear is not None else {}
    if is_dynamic:
        graph, stored = dynamic_gear(capture, unit.lifted, symbols, request.decompositions, request.spec)
        stored = replace(stored, text=text or stored.text)
    else:
        inputs = [input_spec(item, lambda size: symbols.value(size, assignment)) for item in capture.inputs]
        graph = trace_gear(capture, unit.lifted, inputs, request.decompositions)
        stored = None
    if graph.random_operators and not request.backend.allows_random:
        raise CaptureError(
            capture.method,
            f"it draws random numbers ({', '.join(graph.random_operators)}), which backend "
            f"`{request.backend.name}` would not draw as eager does; use backend='eager' or take them as an argument",
        )
    number_results(capture.numbers, graph.results, symbols, None if is_dynamic else assignment)
    order_inputs(graph)
    if stored is not None:
        for spec in graph.inputs[len(stored.sizes) :]:  # buffers that the graph writes
            for rows, numbers in ((stored.sizes, spec.sizes), (stored.strides, spec.strides)):
                rows.append(list(numbers))
        _add_written_buffers(graph)
    else:
        stored = StoredGear(
            text=text or _shapes_text(capture, graph),
            sizes=[list(spec.sizes) for spec in graph.inputs],
            strides=[list(spec.strides) for spec in graph.inputs],
            results=graph.results,
            header={},
            blobs={},
            written=graph.written_inputs,
            assumed=gear.assumed if gear is not None else [],
        )
    return graph, stored


def _all_gears_job(request: BuildRequest, unit: _Unit) -> CompileJob:
    """Return the one job whose graph serves all gears of a unit."""
    gears = [gear for _, gear in unit.gears]
    graph = all_gears_graph(unit.capture, unit.lifted, gears, request.decompositions)
    order_inputs(graph)
    _add_written_buffers(graph)
    return _job(request, unit.capture, "; ".join(text for text, _ in unit.gears), graph)


def _add_written_buffers(graph: GearGraph) -> None:
    """Give the buffers that the graph writes, which are inputs now, their rows of sizes and strides."""
    for spec in graph.inputs[len(graph.symbols["sizes"]) :]:
        graph.symbols["sizes"].append(list(spec.sizes))
        graph.symbols["strides"].append(list(spec.strides))


def _shapes_text(capture: Capture, graph: GearGraph) -> str:
    named = [f"{item.access.text}{tuple(spec.sizes)}" for item, spec in zip(capture.inputs, graph.inputs, strict=False)]
    return ", ".join(named[:4]) + (", …" if len(named) > 4 else "") or "static"


def _job(request: BuildRequest, capture: Capture, text: str, graph: GearGraph) -> CompileJob:
    return CompileJob(
        method=capture.method,
        gear=text or "static",
        graph=encode_graph(capture.method, graph.module) | {"symbols": graph.symbols},
        inputs=graph.inputs,
        attributes=graph.attributes,
        options=dict(request.options),
        threads=torch.get_num_threads(),
    )


def _variant(
    request: BuildRequest,
    unit: _Unit,
    graph: GearGraph,
    gears: list[StoredGear],
    artifacts: list[Artifact],
) -> BuiltVariant:
    capture = unit.capture
    moved = graph.written_attributes
    inputs = [StoredInput(item.access, item.dtype, item.device.type) for item in capture.inputs]
    for name in moved:
        tensor = capture.attribute_tensors[name]
        inputs.append(StoredInput(capture.attributes[name], tensor.dtype, tensor.device.type, in_frame=False))
    call_checks, evidence = split_checks(capture, next(iter(parameter_names(request.function))))
    variant = StoredVariant(
        frame=unit.frame,
        references=unit.references,
        graph_name=capture.graph_name,
        inputs=inputs,
        attributes={name: access for name, access in capture.attributes.items() if name not in moved},
        call_checks=call_checks,
        evidence=evidence_tree(evidence),
        # Hashed after the compile: see `guards.sources` on edits meanwhile.
        sources=record_sources(capture.traced_code),
        gears=gears,
        padding=unit.padding,
        numbers=[
            [name, access.to_plain()]
            for name, access in zip(capture.numbers.names().values(), capture.number_accesses, strict=True)
        ],
    )
    return BuiltVariant(variant, artifacts)


def split_checks(capture: Capture, instance: str) -> tuple[list[Check], list[Check]]:
    """Return the checks of every call, and those that are evidence.

    Per call: what arguments are, and whatever the frame itself writes. Below `type(argument)` everything belongs
    to a class, which the call's type check fixes: evidence.
    """
    tensors = {item.access for item in capture.inputs}

    def per_call(access: Access) -> bool:
        if any(access.starts_with(path) for path in capture.mutated):
            return True
        is_argument = access.root[0] == "argument" and access.root[1] != instance
        return is_argument and all(kind != "type" for kind, _ in access.steps)

    calls: list[Check] = []
    evidence: list[Check] = []
    for check in capture.checks:
        if check.kind == "type" and check.access in tensors:
            continue  # `TensorGuards` compares the exact type
        other = [Access.from_plain(check.expected)] if check.kind == "same" else []
        (calls if any(per_call(access) for access in [check.access, *other]) else evidence).append(check)
    return calls, evidence


def _call_of(signature: inspect.Signature, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    bound = inspect.BoundArguments(signature, dict(arguments))
    return bound.args, bound.kwargs


def _fits(
    capture: Capture, planned: list[PlannedGear], arguments: Mapping[str, Any], spec: GearSpec, *, may_pad: bool
) -> bool:
    """Whether a trace at other sizes describes the sizes of the call at hand (at a gear, or padded to one)."""
    symbols = Symbols(capture.shape_env, capture.unbacked)
    sizes = call_sizes(spec, arguments)
    gear = next((gear for gear in planned if gear.sizes == sizes), None)
    tensors = find_tensors(arguments)
    assignment: dict[Any, int] = dict(gear.assignment) if gear is not None else {}
    if gear is None:
        if not may_pad:
            return False
        for item in capture.inputs:
            for dim, size in enumerate(item.sizes):
                simple = symbols.simplify(size)
                tensor = tensors.get(item.access.text)
                if tensor is not None and not isinstance(simple, int) and simple.is_Symbol:
                    assignment.setdefault(simple, tensor.size(dim))
    for item in capture.inputs:
        tensor = tensors.get(item.access.text)
        if tensor is not None:
            expected = [symbols.value(size, assignment) for size in item.sizes]
            if expected != list(tensor.shape):
                return False
    return True
