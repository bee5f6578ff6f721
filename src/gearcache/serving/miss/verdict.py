"""Decides about a call that no graph serves: an error, an eager run, padding, or a compile. Changes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from msgspec import Struct
from msgspec.structs import replace

from gearcache.errors import GearcacheError, GradientRequired, InputError, RecompileRefused, UnknownGear
from gearcache.guards.dispatch.inputs import GRADIENT_WORDS, Problem, Problems
from gearcache.guards.gears.parse import GearSpec, gear_text
from gearcache.guards.gears.short_names import short_names, sizes_name
from gearcache.serving.call.call import Call

Gear = tuple[int, ...]


class Refuse(Struct, frozen=True):
    """The call raises."""

    error: GearcacheError


class Eager(Struct, frozen=True):
    """The method itself serves the call: `on_miss` or the stance says so."""

    #: One of `gearcache.telemetry.counters.EAGER_REASONS`.
    reason: str


class Pad(Struct, frozen=True):
    """The call is padded to a gear; the gears of the spec are compiled first if no loaded one can serve it."""

    spec: GearSpec


class Compile(Struct, frozen=True):
    """The gears of the spec are compiled."""

    spec: GearSpec


Verdict = Refuse | Eager | Pad | Compile


class MissRules(Struct, frozen=True):
    """The options of one method about calls that no graph serves."""

    name: str
    spec: GearSpec
    on_miss: str
    #: Whether calls compare dtypes and strides: else two graphs that differ only in these could not be distinguished.
    is_compared: bool = True

    def outside(self, call: Call, reason: str | None = None) -> UnknownGear:
        """Return the error of a call outside all gears; `reason` says why it was not padded."""
        gears = [gear_text(self.spec, gear) for gear in self.spec.gears]
        gear_names = "; ".join(short_names(gears).values())
        description = f"outside all gears: {sizes_name(gear_text(self.spec, call.sizes(self.spec)), gears)}"
        if reason:
            gear_names += f" (padding: {reason})"
        return UnknownGear(self.name, self.spec.axes[0].path, description, gear_names)


class WantedGraph(Struct, frozen=True):
    """A graph that may be made."""

    #: Whether its sizes are outside the gears and ranges of the spec.
    is_outside: bool = False
    #: Whether only this gear is compiled: a loaded gear of these sizes is for other strides, or assumes more than the
    #: spec says; or only sizes distinguish this graph from those of another dtype.
    is_alone: bool = False


def decide(call: Call, problems: Problems, rules: MissRules, missing: tuple[Gear, ...], why: str) -> Verdict:
    """Return the verdict on a call.

    `problems` are the reasons of the loaded graphs, `missing` the gears of the spec that no loaded variant has for such
    a call, `why` says why no loaded or stored graph serves it.
    """
    graph = graph_to_make(call, problems, rules)
    if isinstance(graph, InputError):
        return Refuse(graph)
    if torch.is_grad_enabled():  # cached methods are inference, and so is the method itself where it stands in
        for path, tensor in call.tensors.items():
            if tensor.requires_grad:
                return Refuse(GradientRequired(rules.name, path, *GRADIENT_WORDS))
    if graph.is_outside and rules.on_miss == "eager":
        return Eager("on_miss")
    if call.stance == "fail_on_recompile":
        return Refuse(RecompileRefused(rules.name, why))
    if call.stance == "eager_on_recompile":
        return Eager("stance")
    spec = _spec_of_compile(call, rules, missing, alone=graph.is_alone)
    return Pad(spec) if graph.is_outside and rules.on_miss == "pad" else Compile(spec)


def graph_to_make(call: Call, problems: Problems, rules: MissRules) -> WantedGraph | InputError:
    """Return the graph that a call needs; an error for a wrong tensor, or a shape that the spec does not allow."""
    spec, raises = rules.spec, rules.on_miss == "raise"
    sizes = call.sizes(spec)
    is_complete = bool(spec.axes) and len(sizes) == len(spec.axes)
    gear = gear_text(spec, sizes) if is_complete else None
    problem = problems.decisive(gear)
    if problem is not None and problem.kind == "grad":
        return GradientRequired(rules.name, problem.argument, problem.value, problem.allowed)
    if problem is not None and (problem.kind in ("structure", "alias", "number") or _is_of_state(problem, call)):
        problem = None  # another variant, for example for another text among the arguments
    is_strided = problem is not None and problem.kind == "stride" and rules.is_compared
    is_other = is_strided or (problem is not None and problem.kind == "dtype" and rules.is_compared)
    if is_other and rules.on_miss == "eager":
        return WantedGraph(is_outside=True)
    if problem is not None and problem.kind == "dtype" and rules.on_miss == "compile":
        if rules.is_compared:
            problem = None
        elif is_complete and gear not in problems.gears:  # its sizes separate its graph from the loaded ones
            return WantedGraph(is_outside=sizes not in spec.gears, is_alone=True)
    if problem is not None and not is_strided and problem.kind not in ("shape", "rank", "read"):
        return _error(rules, problem)
    if problem is not None and problem.kind == "rank" and raises:
        return _error(rules, problem)
    out_of_range = spec.range_problem(call.tensors)
    if out_of_range is not None:
        return (
            UnknownGear(rules.name, *out_of_range)
            if rules.on_miss in ("raise", "pad")
            else WantedGraph(is_outside=True)
        )
    is_declared = problem is not None and (problem.kind == "read" or _is_declared(spec, problem))
    if not spec.axes:
        return _error(rules, problem) if problem is not None and raises and not is_declared else WantedGraph()
    if is_complete and sizes not in spec.gears:
        if raises:
            return rules.outside(call)
        if rules.on_miss == "pad" and not holds_sizes(spec.gears, sizes):
            return rules.outside(call, _too_small(spec, sizes))
        return WantedGraph(is_outside=True)
    is_loaded = problem is not None and gear in problems.gears
    # If only dims differ that the gears do not mention, all gears are compiled at the call's sizes of these dims.
    return WantedGraph(is_alone=is_loaded and problem is not None and (problem.is_assumption or is_strided))


def holds_sizes(gears: Iterable[Gear], sizes: Gear) -> bool:
    """Return whether one of some gears is at least as large as some sizes: only such a one can be padded to."""
    return any(all(own >= size for own, size in zip(gear, sizes, strict=True)) for gear in gears)


def _too_small(spec: GearSpec, sizes: Gear) -> str:
    """Return that the largest gear is smaller than some sizes."""
    largest = max(spec.gears, key=math.prod)
    size = next((size for own, size in zip(largest, sizes, strict=True) if own < size), max(sizes))
    return f"gear {sizes_name(gear_text(spec, largest))} is smaller than {size}"


def _spec_of_compile(call: Call, rules: MissRules, missing: tuple[Gear, ...], *, alone: bool) -> GearSpec:
    """Return the gears to compile for a call: all that are missing; just its own if `alone` or not in the spec."""
    spec = rules.spec
    if spec.range_problem(call.tensors) is not None:
        spec, alone = replace(spec, ranges=()), True
    sizes = call.sizes(spec)
    if not spec.axes or len(sizes) != len(spec.axes):
        return spec
    if alone or (sizes not in spec.gears and rules.on_miss != "pad"):
        return spec.only([sizes])
    if not missing and spec.dynamic_axes and sizes in spec.gears:  # each gear has a graph, but for other strides
        return spec.only([sizes])
    return spec.only(missing) if len(missing) < len(spec.gears) and sizes in missing else spec


def _is_declared(spec: GearSpec, problem: Problem) -> bool:
    """Whether only dims differ that the spec declares to be of any size in a range (1 needs another trace)."""
    axes = [axis for axis in spec.dynamic_axes if axis.matches(problem.argument)]
    return problem.kind == "shape" and bool(problem.dims) and set(problem.dims) <= {axis.dim for axis in axes}


def _is_of_state(problem: Problem, call: Call) -> bool:
    """Whether the problem is about a weight, or about something that the method reads by itself, not an argument.

    Weights that are inputs belong to a module among the arguments, or are replaced by the method.
    """
    if problem.stored is None:
        return False
    kind, name = problem.stored.access.root
    is_given = kind == "argument" and name != next(iter(call.arguments))
    return problem.stored.is_weight or not is_given


def _error(rules: MissRules, problem: Problem) -> InputError:
    allowed = problem.allowed
    if problem.kind == "dtype" and rules.is_compared:
        allowed += ', as of the calls that it was compiled for; on_miss="compile" makes a graph for another one'
    return InputError(rules.name, problem.argument, problem.value, allowed)
