"""Decides which captures the gears of one call need: one, plus one for each gear that breaks it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from msgspec import Struct, field

from gearcache.building.request import BuildRequest
from gearcache.building.tracer import Tracer
from gearcache.errors import CaptureError, CompileError, GearSpecError, MethodRaises, UncacheableGuard, UnkeyableValue
from gearcache.ge_cache.capture.captured import Capture
from gearcache.ge_cache.capture.references import frame_references
from gearcache.ge_cache.graphs.plan import PlannedGear
from gearcache.ge_cache.graphs.static import lift_attributes
from gearcache.guards.dispatch.frame import UnstorableConstant, encode_code
from gearcache.guards.evidence.operators import record_operators
from gearcache.guards.evidence.traced_files import UnnamedCode, record_sources
from gearcache.guards.gears.parse import GearSpec, gear_text

logger = logging.getLogger("gearcache")


class TraceUnit(Struct):
    """One capture and the gears to compile from it."""

    capture: Capture
    #: Text and plan of each gear; a plan of None is a gear at the sizes of the capture.
    gears: list[tuple[str, PlannedGear | None]]
    #: The captured graph with its attributes turned into inputs, a `torch.fx.GraphModule`; made from the capture.
    lifted: Any = None
    frame: dict[str, Any] = field(default_factory=dict)
    references: dict[str, list[str]] = field(default_factory=dict)
    padding: dict[str, Any] | None = None
    #: Names of the operators in the graphs of the gears that do not belong to torch.
    operators: set[str] = field(default_factory=set)
    #: Makes replacement units if no graph can be recorded of this one; None if there is no replacement.
    otherwise: Callable[[CaptureError], Iterator[TraceUnit]] | None = None
    #: Makes units for gears for which no graph can be recorded from the capture.
    own: Callable[[list[PlannedGear]], Iterator[TraceUnit]] | None = None

    def __post_init__(self) -> None:
        self.lifted = lift_attributes(self.capture)

    def check_storable(self) -> None:
        """Encode the frame and look up the sources, so that anything that cannot be stored fails before any compile."""
        capture = self.capture
        try:
            self.frame = encode_code(capture.frame_code)
            record_sources(capture.traced_code)
        except UnstorableConstant as error:
            raise CaptureError(capture.method, f"its frame holds {error}") from None
        except UnnamedCode as error:
            raise UncacheableGuard(
                capture.method, "source", str(error), "no file holds it: `exec` made it, or its file was edited since"
            ) from None
        self.references = frame_references(
            capture.method,
            capture.frame_code,
            capture.graph_name,
            capture.imports,
            capture.installed,
            capture.frame_globals,
        )

    def add_operators(self, names: list[str]) -> None:
        """Record the operators of a graph; `CaptureError` for one whose change another process could not detect."""
        try:
            record_operators(set(names) - self.operators)
        except UnkeyableValue as error:
            raise CaptureError(self.capture.method, f"{error.detail} (a {error.type_name})") from None
        self.operators.update(names)


class Units:
    """The captures of one build, made one after the other; failures are in `errors` and `impossible`."""

    def __init__(self, request: BuildRequest, tracer: Tracer) -> None:
        self._request = request
        self._tracer = tracer
        #: Gears whose trace failed.
        self.errors: list[CompileError] = []
        #: Gears of the spec that cannot exist, because the trace relates their sizes differently.
        self.impossible: list[str] = []
        #: Gears at which the method raises for the ints of the call, and these ints, see `StoredVariant`.
        self.raising: list[list[Any]] = []
        #: How often all units were replaced by static ones.
        self._replaced = 0

    def __iter__(self) -> Iterator[TraceUnit]:
        """Yield captures with their gears, the call's own first; for both grad modes if the method asks."""
        for with_grad in self._request.grad_modes:
            if not with_grad or self._tracer.asks_grad_mode:
                self._tracer.with_grad = with_grad
                yield from self._of_mode()

    def _of_mode(self) -> Iterator[TraceUnit]:
        spec = self._request.spec
        if not spec.axes:
            yield TraceUnit(self._tracer.free(), [("", None)], otherwise=self._otherwise())
            return
        capture, planned = self._tracer.geared()
        possible = {gear.sizes for gear in planned}
        self.impossible = [gear_text(spec, gear) for gear in spec.gears if gear not in possible]
        if self._request.fills is not None:
            yield from self._padded_units(capture, planned)
            return
        covered = [gear for gear in planned if gear.broken is None and not spec.dynamic_axes]
        replaced = self._replaced
        if covered:
            yield TraceUnit(
                capture,
                [(gear.text(spec), gear) for gear in covered],
                otherwise=self._otherwise(),
                own=partial(self._own_units, capture),
            )
        if self._replaced == replaced:
            refusing = [gear for gear in planned if not gear.takes_call and not spec.dynamic_axes]
            yield from self._own_units(capture, [gear for gear in planned if gear not in (*covered, *refusing)])
            yield from self._units_for_ints(capture, refusing)

    def _otherwise(self) -> Callable[[CaptureError], Iterator[TraceUnit]] | None:
        """Return a function that makes static units; None if nothing is optionally dynamic."""
        if not self._tracer.may_be_static:
            return None

        def static(error: CaptureError) -> Iterator[TraceUnit]:
            self._tracer.stay_static(error, keeps_numbers=True)
            self._replaced += 1
            return self._of_mode()

        return static

    def _own_units(self, capture: Capture, gears: list[PlannedGear]) -> Iterator[TraceUnit]:
        """Yield a static capture for each gear that a capture does not cover."""
        for gear in gears:
            text = gear.text(self._request.spec)
            why = gear.broken or (
                "it has dynamic dims" if self._request.spec.dynamic_axes else "nothing can be recorded"
            )
            name = self._request.names.get(text, text)
            logger.info("%s: gear %s needs a trace of its own (%s)", capture.method, name, why)
            unit = self._own_capture(capture, gear)
            if unit is not None:
                yield unit

    def _units_for_ints(self, capture: Capture, gears: list[PlannedGear]) -> Iterator[TraceUnit]:
        """Yield captures for the ints of the call at gears where the capture takes only other ints.

        `x[:n]` with `n=5` cuts 8 rows, and not 4. Each trace covers as many of the gears as it can.
        """
        spec = self._request.spec
        while gears:
            first = gears[0]
            logger.info("%s: gear %s needs a trace for the ints of the call", capture.method, first.text(spec))
            arguments, _ = self._tracer.arguments_at(capture, first)
            if arguments is None:  # only a real call has the sizes of the arguments that the trace does not use
                gears = gears[1:]
                continue
            try:
                own_capture, planned = self._tracer.planned(arguments)
            except (CaptureError, GearSpecError) as error:
                self._note_failed_trace(capture, first, error)
                gears = gears[1:]
                continue
            sizes = [gear.sizes for gear in gears]
            covered = [gear for gear in planned if gear.sizes in sizes and gear.broken is None and gear.takes_call]
            if first.sizes in [gear.sizes for gear in covered] and not _relates_ints(own_capture):
                yield TraceUnit(
                    own_capture,
                    [(gear.text(spec), gear) for gear in covered],
                    own=partial(self._own_units, own_capture),
                )
            else:
                covered = [first]
                yield from self._own_units(capture, covered)
            covered_sizes = [gear.sizes for gear in covered]
            gears = [gear for gear in gears if gear.sizes not in covered_sizes]

    def _padded_units(self, capture: Capture, planned: list[PlannedGear]) -> Iterator[TraceUnit]:
        """Yield captures with symbolic dims and a plan for padding, as many as cover the gears.

        A size of 1 is never symbolic. The other dims of such a gear get their own capture, so that a call of one row is
        padded in those dims only.
        """
        spec = self._request.spec
        if spec.dynamic_axes:
            raise GearSpecError(f"`{capture.method}`: on_miss='pad' needs gears for all dims; the spec has ranges")
        uncovered, first_capture = planned, capture
        while uncovered:
            covered = [
                gear for gear in planned if gear.broken is None and gear.sizes in [item.sizes for item in uncovered]
            ]
            if covered:
                unit = TraceUnit(capture, [(gear.text(spec), gear) for gear in covered])
                try:
                    unit.padding = self._padding_plan(unit, covered)
                except GearSpecError as error:
                    is_first = capture is first_capture and all(min(gear.sizes) >= 2 for gear in covered)
                    if is_first and not self._has_joined(capture):
                        raise
                    logger.info("%s: no padding of %s: %s", capture.method, _texts(spec, covered), error)
                    yield from self._own_units(capture, uncovered)
                    return
                yield unit
            elif capture is first_capture:
                causes = "; ".join(f"{self._request.names[gear.text(spec)]}: {gear.broken}" for gear in planned[:2])
                raise GearSpecError(
                    f"`{capture.method}`: on_miss='pad' finds no gear that the trace leaves symbolic ({causes}): give "
                    "gears also to the arguments that have to follow, such as a mask"
                )
            covered_sizes = [gear.sizes for gear in covered]
            uncovered = [gear for gear in uncovered if gear.sizes not in covered_sizes]
            symbolic = [gear for gear in uncovered if gear.assignment and max(gear.sizes) >= 2]
            symbolic.sort(key=lambda gear: min(gear.sizes) < 2)
            if not covered or not symbolic:
                yield from self._own_units(capture, uncovered)
                return
            next_gear = symbolic[0]
            name = self._request.names[next_gear.text(spec)]
            logger.info("%s: gear %s needs a trace of its own (%s)", capture.method, name, next_gear.broken)
            capture, planned = self._tracer.planned(self._tracer.resized(capture, next_gear.assignment))

    def _has_joined(self, capture: Capture) -> bool:
        """Return whether one tensor was given for several arguments: this trace cannot be padded, another may."""
        fills = self._request.fills
        return fills is not None and any(
            check.kind == "same" and fills.names(check.access.text) for check in capture.checks
        )

    def _padding_plan(self, unit: TraceUnit, covered: list[PlannedGear]) -> dict[str, Any]:
        """Prove that calls between gears may be padded; `GearSpecError` if there is no proof."""
        from gearcache.ge_cache.padding.plan import (
            equal_symbols,
            padded_symbols,
            padding_plan,
            patterns_of_one,
            same_effects,
            same_program,
        )

        request, capture, symbols = self._request, unit.capture, unit.capture.symbols()
        assert request.fills is not None
        assignments = [gear.assignment for gear in covered]
        padded = padded_symbols(capture, symbols, assignments, request.fills)
        groups = equal_symbols(padded, assignments)
        plan = padding_plan(capture, unit.lifted, symbols, request.decompositions, padded, groups, request.fills)
        for pattern in patterns_of_one(padded, plan["proofs"]):
            try:
                static_capture = self._tracer.capture(self._tracer.resized(capture, pattern), dynamic=False)
                is_same = same_program(capture, static_capture, symbols, pattern) and same_effects(
                    capture, unit.lifted, request.decompositions, pattern
                )
            except CaptureError as error:
                logger.info("%s: a size of 1 cannot be padded: %s", capture.method, error)
                continue
            if is_same:
                plan["ones"].append(sorted(str(symbol) for symbol in pattern))
        return plan

    def _own_capture(self, capture: Capture, gear: PlannedGear) -> TraceUnit | None:
        """Trace one gear with static sizes, from arguments of its sizes."""
        text, (arguments, is_known) = gear.text(self._request.spec), self._tracer.arguments_at(capture, gear)
        try:
            static_capture = self._tracer.ranged(arguments) if arguments is not None else None
        except CaptureError as error:
            static_capture = None
            if is_known:
                self._note_failed_trace(capture, gear, error)
                return None
        if static_capture is None:
            name = self._request.names.get(text, text)
            logger.info("%s: gear %s will be compiled at its first call", capture.method, name)
            return None

        def static(error: CaptureError) -> Iterator[TraceUnit]:
            self._tracer.stay_static(error, keeps_numbers=True)
            yield from self._own_units(capture, [gear])

        return TraceUnit(static_capture, [(text, None)], otherwise=static if self._tracer.may_be_static else None)

    def _note_failed_trace(self, capture: Capture, gear: PlannedGear, error: CaptureError | GearSpecError) -> None:
        """Record that a gear has no trace for the ints of a capture. If the method itself raises, it needs none."""
        text = gear.text(self._request.spec)
        if isinstance(error, MethodRaises):
            name = self._request.names.get(text, text)
            logger.info("%s: gear %s is left out for the ints of this call: %s", self._request.name, name, error.cause)
            ints = [
                [access.to_plain(), capture.symbols().hint(symbol)]
                for symbol, access in capture.number_accesses.items()
                if symbol in capture.numbers.symbols
            ]
            self.raising.append([text, ints])
        else:
            cause = error.cause if isinstance(error, CaptureError) else str(error)
            self.errors.append(CompileError(self._request.name, text, cause))


def _relates_ints(capture: Capture) -> bool:
    """Whether calls compare ints with sizes (`n == x.size(0)`): true at the gear, and not for the call itself."""
    places = [place for check in capture.checks if check.kind == "numbers" for place in check.others]
    return any(place.steps and place.steps[-1][0] == "size" for place in places)


def _texts(spec: GearSpec, gears: list[PlannedGear]) -> str:
    return ", ".join(gear.text(spec) for gear in gears)
