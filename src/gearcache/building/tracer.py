"""Traces one call: at its own sizes, at a gear's sizes, with some or all dims symbolic."""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
import time
from collections.abc import Collection, Mapping
from typing import Any

import torch

from gearcache.building.grad_mode import settled
from gearcache.building.request import BuildRequest, Findings
from gearcache.building.sized_calls import enlarged_call, like_dims, like_tensor, range_dims, sized_call
from gearcache.errors import CaptureError, GearSpecError, MethodRaises, ModuleChanged
from gearcache.events import Event
from gearcache.ge_cache.capture.capture import capture_method
from gearcache.ge_cache.capture.captured import Capture
from gearcache.ge_cache.capture.number_choice import NO_NUMBERS, NumberChoice, NumberRefused
from gearcache.ge_cache.capture.numbers import check_takes
from gearcache.ge_cache.graphs.dynamic import check_numbers
from gearcache.ge_cache.graphs.number_inputs import mixed_conditions
from gearcache.ge_cache.graphs.plan import PlannedGear, matching_inputs, plan_gears
from gearcache.ge_cache.graphs.static import gear_symbols
from gearcache.ge_cache.private_torch import dynamo as private_dynamo
from gearcache.ge_cache.private_torch import shapes as private_shapes
from gearcache.guards.access import Access
from gearcache.guards.arguments import find_tensors, replace_tensors
from gearcache.guards.gears.call_sizes import call_sizes
from gearcache.guards.gears.parse import GearSpec
from gearcache.interrupts import raise_interrupt
from gearcache.telemetry.counters import Counters

logger = logging.getLogger("gearcache")
Arguments = Mapping[str, Any]
#: How often a call is traced if another thread changes meanwhile what the trace reads.
_ATTEMPTS = 3


class Tracer:
    """Runs Dynamo over a call; every run is an event `trace`."""

    def __init__(self, request: BuildRequest, counters: Counters) -> None:
        self._request = request
        self._counters = counters
        # The signature that the arguments were bound to: a decorator's own `*args, **kwargs`, not what it wraps.
        self._signature = inspect.signature(request.bound.method, follow_wrapped=False)
        #: Whether captures behave as with autograd on, and whether that is known to make a difference.
        self.with_grad = False
        self.asks_grad_mode = False not in request.grad_modes
        #: Which ints are to be numbers, as far as traces have shown.
        self._numbers = request.numbers.with_changing(request.findings.written_ints)
        #: For each choice of numbers: the choice that remained after traces refused some of them, and their reasons.
        self._remaining_choices: dict[NumberChoice, tuple[NumberChoice, dict[str, None]]] = {}
        self._captures: list[Capture] = []
        #: Why only declared or marked dims are dynamic: no graph could be made otherwise; "" if all may be.
        self._static_because = request.static_because
        self._unbound = set(request.findings.unbound)

    @property
    def findings(self) -> Findings:
        """The findings of the traces so far."""
        return Findings(self._numbers.changing - self._request.numbers.changing, frozenset(self._unbound))

    def free(self) -> Capture:
        """Trace with all dims dynamic, with only those of a declared range, or with none."""
        request = self._request
        if request.spec.ranges:
            capture = self.ranged(request.arguments)
        else:
            is_dynamic = request.dynamic and not self._static_because
            try:
                with private_dynamo.marked_dynamic(self._open_dims(request.arguments)):
                    capture = self.capture(request.arguments, dynamic=is_dynamic)
            except CaptureError as error:
                # The exception may come from an operation that Dynamo does not support for symbols. Otherwise, if no
                # dim has changed, most likely no trace of the method is possible at all.
                may_be_symbols = isinstance(error, MethodRaises) and not error.is_by_statement
                if not self.may_be_static or not (may_be_symbols or request.changing):
                    raise
                self.stay_static(error)
                return self.free()
        if request.backend.compiles and any(size < 2 for size in capture.unbacked.values()):
            # Compilers assume that every symbol is at least 2: a smaller size gets its own graph.
            with private_shapes.unmarked(find_tensors(request.arguments).values()):
                capture = self.capture(request.arguments, dynamic=False)
        return capture

    @property
    def may_be_static(self) -> bool:
        """Whether sizes or ints are dynamic although the caller does not require it."""
        request = self._request
        return bool(self._numbers) or (not self._static_because and bool(request.dynamic or request.changing))

    def stay_static(self, error: CaptureError, *, keeps_numbers: bool = False) -> None:
        """Make static captures from now on, because no graph could be made with symbols for the varying sizes.

        If `keeps_numbers`, ints become constants only when static sizes were not enough.
        """
        raise_interrupt(error)
        keeps_numbers = keeps_numbers and bool(self._numbers) and not self._static_because
        static = "sizes" if keeps_numbers else "sizes and numbers"
        logger.info("%s: %s that vary stay static: %s", self._request.name, static, error.cause)
        self._static_because = self._static_because or error.cause
        if not keeps_numbers:
            self._numbers = NO_NUMBERS

    def geared(self) -> tuple[Capture, list[PlannedGear]]:
        """Trace at the call's own sizes, or, if those contain a 0 or 1, at another gear's.

        If calls are padded and the trace does not hold at all gears, trace at the largest one.
        """
        capture, planned = self._enlarged() or self.planned(self._request.arguments)
        if self._request.fills is None or all(gear.broken is None for gear in planned if min(gear.sizes) >= 2):
            return capture, planned
        return self._at_largest_gear(capture, planned) or (capture, planned)

    def _enlarged(self) -> tuple[Capture, list[PlannedGear]] | None:
        """Trace a call of size 0 or 1 at another gear's sizes; None if that trace does not describe the call."""
        spec, arguments = self._request.spec, self._request.arguments
        if all(size >= 2 for size in call_sizes(spec, find_tensors(arguments))):
            return None
        enlarged = enlarged_call(spec, arguments)
        if enlarged is None:
            return None
        try:
            capture, planned = self.planned(enlarged)
        except (CaptureError, GearSpecError) as error:
            logger.debug("%s: no trace at another gear's sizes: %s", self._request.name, error)
            return None
        fits = _fits(capture, planned, arguments, spec, may_pad=self._request.fills is not None)
        return (capture, planned) if fits else None

    def _at_largest_gear(
        self, capture: Capture, planned: list[PlannedGear]
    ) -> tuple[Capture, list[PlannedGear]] | None:
        """Trace at the gear that holds most, for padding; None if that is not possible.

        A method that takes another branch at some sizes has several traces. Which one is padded must not depend on the
        sizes of the first call: a prewarm would build other gears than a server.
        """
        largest = max(planned, key=lambda gear: math.prod(gear.sizes))
        resized, _ = self.arguments_at(capture, largest)
        if resized is None or resized is self._request.arguments or min(largest.sizes) < 2:
            return None
        try:
            return self.planned(resized)
        except (CaptureError, GearSpecError) as error:
            logger.debug("%s: no trace at the largest gear: %s", self._request.name, error)
            return None

    def planned(self, arguments: Arguments) -> tuple[Capture, list[PlannedGear]]:
        """Trace with only those dims symbolic that have a geared dim's size, which is three times as fast.

        If that freezes a geared dim (another dim is a multiple of it), trace again with all dims symbolic. If Dynamo
        does not support an operation for symbols (`divmod`), trace with none: every gear then needs its own trace.
        """
        spec = self._request.spec
        try:
            alike = like_dims(spec, arguments, self._request.bound.instance)
            with private_dynamo.marked_dynamic([*alike, *self._open_dims(arguments)]):
                capture = self.capture(arguments, dynamic=False)
            planned = plan_gears(capture, capture.symbols(), spec)
            if any(gear.broken is None for gear in planned) or all(gear.assignment for gear in planned):
                return capture, planned
        except CaptureError as error:
            logger.debug("%s: no trace with few symbolic dims: %s", self._request.name, error)
        try:
            capture = self.capture(arguments, dynamic=True)
        except MethodRaises as error:
            if error.is_by_statement:
                raise
            capture = self.capture(arguments, dynamic=False)
        return capture, plan_gears(capture, capture.symbols(), spec)

    def ranged(self, arguments: Arguments) -> Capture:
        """Trace with the dims of a declared range dynamic (sizes 0 and 1 stay static) and all others static."""
        spec = self._request.spec
        tensors = find_tensors(arguments)
        with private_dynamo.marked_dynamic([*range_dims(spec, tensors), *self._open_dims(arguments)]):
            capture = self.capture(arguments, dynamic=False)
        for axis in spec.ranges:
            # A range that the method does not use may have any size; if the tensor does not exist, its name is wrong.
            if not any(axis.matches(path) and axis.dim < tensor.dim() for path, tensor in tensors.items()):
                matching_inputs(capture, axis)
        return capture

    def _open_dims(self, arguments: Arguments) -> list[tuple[torch.Tensor, int]]:
        """Return the dims of the arguments and the module that vary although they are not declared."""
        if self._static_because:
            return []
        scope = self._request.bound.scope(arguments)
        dims = []
        for place, dim in self._request.changing:
            value = place.find(scope)  # NOWHERE for a variant of an earlier state of the module
            if isinstance(value, torch.Tensor) and dim < value.dim() and value.size(dim) > 1:
                dims.append((value, dim))
        return dims

    def capture(self, arguments: Arguments, *, dynamic: bool) -> Capture:
        """Trace; trace again if the frame writes buffers or parameters, which must not be bound.

        Ints that vary become numbers, and so do ints that the frame writes, which the first trace shows. They become
        constants if the trace needs their values.
        """
        capture = self._with_numbers(arguments, dynamic, self._numbers)
        written_ints = frozenset(capture.written_ints) - self._numbers.changing - self._numbers.constants
        if written_ints and not capture.constants_because:
            self._numbers = self._numbers.with_changing(written_ints)
            return self._with_numbers(arguments, dynamic, self._numbers, otherwise=capture)
        return capture

    def _with_numbers(
        self, arguments: Arguments, dynamic: bool, choice: NumberChoice, otherwise: Capture | None = None
    ) -> Capture:
        """Trace with numbers; if some are refused, with fewer or none, or return `otherwise` if it is given."""
        requested = choice
        choice, refused = self._remaining_choices.get(requested, (requested, {}))
        while otherwise is None or choice or not refused:
            traced = None
            try:
                traced = self._bound(arguments, dynamic, choice)
                self._check_numbers(traced)
                capture = traced
                break
            except CaptureError as error:
                raise_interrupt(error)
                if traced is None and not error.is_beside_numbers:
                    raise
                places = set(getattr(error, "places", ()))
                if traced is not None:
                    places |= {traced.number_accesses[symbol] for symbol in getattr(error, "symbols", ())}
                refused = {**refused, error.cause: None}
                words = "is a constant" if len(places) == 1 else "are constants"
                logger.info("%s: %s %s of this trace: %s", self._request.name, _texts(places), words, error.cause)
                choice = choice.with_constants(places) if places - choice.constants else NO_NUMBERS
        else:
            capture = otherwise
        if refused:
            self._remaining_choices[requested] = choice, refused
            capture.constants, capture.constants_because = choice.constants, "; ".join(refused)
        for path, line in capture.needed.items():
            logger.info(
                "%s: `%s` is a constant of this trace, which needs its value: %s", self._request.name, path, line
            )
        capture.static_because = self._static_because
        if not self._static_because:
            capture.open_dims = frozenset((place.text, dim) for place, dim in self._request.changing)
        return capture

    def _bound(self, arguments: Arguments, dynamic: bool, choice: NumberChoice) -> Capture:
        capture = self._trace_once(arguments, dynamic, choice)
        while not self._unbound.issuperset(capture.misbound):
            self._unbound.update(capture.misbound)
            capture = self._trace_once(arguments, dynamic, choice)
        return capture

    def _check_numbers(self, capture: Capture) -> None:
        """Raise `CaptureError` if the numbers of a capture cannot be inputs of its graphs.

        To find out, its graph is recorded once, at the sizes of the call.
        """
        request = self._request
        if not capture.numbers:
            return
        if request.backend.takes_all_gears:
            raise CaptureError(capture.method, "one graph is to serve all gears, which takes no numbers")
        if request.backend.is_ge or request.fills is not None:
            floats = frozenset(capture.numbers.floats).union(*capture.numbers.graph_floats.values())
            cause = f"backend `{request.backend.name}` takes no floats" if request.backend.is_ge else "calls are padded"
            if floats:
                raise NumberRefused(capture.method, cause, floats)
        if request.fills is not None:
            check_takes(capture.module.graph, capture.method)
            if any(texts for check in capture.checks if check.kind == "numbers" for texts in check.expected[:1]):
                raise CaptureError(capture.method, "calls are padded, which is not proven for a branch on a number")
            if mixed_conditions(capture):
                raise CaptureError(capture.method, "calls are padded, which is not proven for a number beside a size")
        backend = request.backend
        check_numbers(capture, request.decompositions, compiles=backend.compiles, is_ge=backend.is_ge)
        symbols, numbers = capture.symbols(), set(capture.numbers.symbols)
        for item in capture.inputs:
            for dim, size in enumerate(map(symbols.simplify, item.sizes)):
                tied = numbers & symbols.symbols_of(size)
                if tied and not size.is_Symbol:  # several values may lead to one size
                    cause = f"`{item.access.text}.size({dim})` is {size} of the numbers of the trace"
                    raise NumberRefused(capture.method, cause, tied)

    def close(self) -> None:
        """Drop the tensors of the call and the module; no graph can be recorded from a capture after it."""
        for capture in self._captures:
            capture.drop_references()

    def arguments_at(self, capture: Capture, gear: PlannedGear) -> tuple[Arguments | None, bool]:
        """Return arguments of the sizes of a gear, and whether a trace has determined the sizes of all dims.

        The arguments are None if only a real call can provide them.
        """
        spec, arguments = self._request.spec, self._request.arguments
        if call_sizes(spec, find_tensors(arguments)) == gear.sizes:
            return arguments, True
        if gear.assignment:
            arguments = self.resized(capture, gear.assignment)
        if call_sizes(spec, find_tensors(arguments)) == gear.sizes:
            return arguments, True
        return sized_call(spec, arguments, gear.sizes), False  # the trace has fixed a dim at 1

    def resized(self, capture: Capture, assignment: Mapping[Any, int]) -> Arguments:
        """Return the call's arguments with tensors of the sizes that a trace assigns to them."""
        symbols = capture.symbols()
        replacements = {
            id(item.example): like_tensor(item.example, [symbols.value(size, assignment) for size in item.sizes])
            for item in capture.inputs
            if item.access.root[0] == "argument"
        }
        argument_tensors = find_tensors(self._request.arguments)
        originals = {
            id(argument_tensors[item.access.text]): replacements[id(item.example)]
            for item in capture.inputs
            if item.access.text in argument_tensors and id(item.example) in replacements
        }
        resized: Arguments = replace_tensors(dict(self._request.arguments), replacements | originals)
        return resized

    def _trace_once(self, arguments: Arguments, dynamic: bool, numbers: NumberChoice) -> Capture:
        def capture_as(with_grad: bool) -> Capture:
            return self._trace_as(with_grad, arguments, dynamic, numbers)

        capture = capture_as(self.with_grad)
        if self._request.bound.mode:  # set by a decorator
            return capture
        # A call with autograd off needs no graph for the other mode, and few programs ever call in both.
        compares = len(self._request.grad_modes) > 1 and not self.asks_grad_mode
        capture = settled(capture, self.with_grad, capture_as if compares else None)
        self.asks_grad_mode |= capture.asks_grad_mode
        return capture

    def _trace_as(self, with_grad: bool, arguments: Arguments, dynamic: bool, numbers: NumberChoice) -> Capture:
        """Trace, again if another thread has changed what the trace read; `ModuleChanged` if it does so each time."""
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(ModuleChanged):
                return self._traced(with_grad, arguments, dynamic, numbers)
        return self._traced(with_grad, arguments, dynamic, numbers)

    def _traced(self, with_grad: bool, arguments: Arguments, dynamic: bool, numbers: NumberChoice) -> Capture:
        begin = time.monotonic()
        positional, keywords = _call_of(self._signature, arguments)
        name, function = self._request.name, self._request.bound.method
        try:
            with private_shapes.unmarked_gears(find_tensors(arguments).values()):
                capture = capture_method(
                    function,
                    positional,
                    keywords,
                    method=name,
                    dynamic=dynamic,
                    numbers=numbers,
                    unbound=self._unbound,
                    with_grad=with_grad,
                )
            capture.is_compiled = self._request.backend.compiles
            self._captures.append(capture)
            return capture
        finally:
            self._counters.note(Event("trace", name, seconds=time.monotonic() - begin))


def _texts(places: Collection[Access]) -> str:
    return ", ".join(sorted(f"`{place.text}`" for place in places)) or "its numbers"


def _call_of(signature: inspect.Signature, arguments: Arguments) -> tuple[tuple[Any, ...], dict[str, Any]]:
    bound = inspect.BoundArguments(signature, dict(arguments))
    return bound.args, bound.kwargs


def _fits(capture: Capture, planned: list[PlannedGear], arguments: Arguments, spec: GearSpec, *, may_pad: bool) -> bool:
    """Whether a trace at other sizes also describes the sizes of this call (at a gear, or padded to one)."""
    symbols = capture.symbols()
    tensors = find_tensors(arguments)
    sizes = call_sizes(spec, tensors)
    gear = next((gear for gear in planned if gear.sizes == sizes), None)
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
    symbolic = gear_symbols(capture, assignment)
    return symbolic is None or symbolic.takes_call
