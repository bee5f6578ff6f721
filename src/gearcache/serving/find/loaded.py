"""The loaded variants of one binding, and which of their graphs serves a call."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct

from gearcache.errors import InputError
from gearcache.guards.access import Access, Scope
from gearcache.guards.dispatch.function import BoundGear, are_same_objects
from gearcache.guards.dispatch.graph_call import GraphCall
from gearcache.guards.dispatch.inputs import Problem, Problems, broken_condition, find_problem
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredVariant
from gearcache.guards.evidence.reason import Reason
from gearcache.guards.gears.spec import GearSpec, gear_text
from gearcache.serving.call.call import Call
from gearcache.serving.find.activate import ActiveVariant, ArgumentCheck, inputs_of, misfit, numbers_of, tensors_of
from gearcache.serving.find.basis import Basis

if TYPE_CHECKING:
    from gearcache.guards.dispatch.other_gears import GearFit

#: Takes the arguments of a call, the instance first, and returns its result.
Frame = Callable[..., Any]

#: A program may make a class for each request.
_MOST_OF_ONE = 8
#: The answer of a lookup that compares only what earlier ones have reported.
NOTHING_NEW = Reason("", "")


class Answer(Struct, frozen=True):
    """The answer to a call: the frame that serves it, or why there is none."""

    frame: Frame | None = None
    #: Why no loaded graph takes the call.
    problems: Problems = Problems()
    #: Why no stored variant was loaded for it: the reason of the miss, `NOTHING_NEW` if the lookup has found none; None
    #: if one was loaded, or if none was needed.
    unloaded: Reason | None = None


#: By id. Without a lock: a fork while another thread holds it would leave it locked in the child.
_everywhere: weakref.WeakValueDictionary[int, LoadedVariants] = weakref.WeakValueDictionary()


def loaded_in_process() -> list[StoredVariant]:
    """Return the variants that the methods of this process have loaded."""
    owners = [owner for reference in _everywhere.valuerefs() if (owner := reference()) is not None]
    return [active.variant for owner in owners for active in list(owner.variants)]


class LoadedVariants:
    """Finds the frame of a call without the dispatch, and prepares the graphs for similar calls."""

    def __init__(self, name: str, *, validate: bool) -> None:
        self.variants: list[ActiveVariant] = []
        #: A frame per loaded gear, as of the last `accept`.
        self.gears: list[BoundGear] = []
        self._name = name
        self._validate = validate
        _everywhere[id(self)] = self

    def forget(self) -> None:
        """Drop all variants."""
        self.variants.clear()
        self.gears = []

    def gear_texts(self) -> list[str]:
        """Return the texts of the loaded gears."""
        return [graph.gear.text for active in self.variants for graph in active.graphs]

    def has(self, variant: StoredVariant, arguments: ArgumentCheck) -> bool:
        """Return whether a variant is loaded, for the very objects of a call if the call fits it."""
        loaded = [active.objects for active in self.variants if active.variant is variant]
        if not loaded or arguments.misfit(variant) is not None:
            return bool(loaded)
        objects = arguments.compared_objects(variant)
        return any(are_same_objects(each, objects) for each in loaded)

    def graphs_of(self, variant: StoredVariant, scope: Scope) -> list[GraphCall] | None:
        """Return the graphs of a variant that is loaded for other objects, bound to the weights as they are now."""
        loaded = (active for active in self.variants if active.variant is variant)
        return next((active.graphs for active in loaded if active.basis.has_weights(scope)), None)

    def add(self, active: ActiveVariant) -> None:
        """Add a variant. Of those loaded for many classes or functions of one name, the oldest goes."""
        same_ids = [id(each) for each in self.variants if each.variant is active.variant]
        dropped_id = same_ids[0] if len(same_ids) >= _MOST_OF_ONE else None
        self.variants[:] = [*(each for each in self.variants if id(each) != dropped_id), active]

    def are_for(self, call: Call) -> bool:
        """Whether no variant is loaded for other objects than those that a call passes: its evidence leads to them."""
        arguments = ArgumentCheck(call.scope)
        return all(
            arguments.misfit(active.variant) is None
            and are_same_objects(active.objects, arguments.compared_objects(active.variant))
            for active in self.variants
            if active.objects
        )

    def bases(self) -> list[Basis]:
        """Return what the loaded variants rest on, each once."""
        return list(dict.fromkeys(active.basis for active in self.variants))

    def left_out(self) -> list[str]:
        """Return the messages that the method logs and the graphs do not."""
        return sorted({text for active in self.variants for text in active.variant.left_out})

    def find(self, call: Call, arguments: ArgumentCheck | None = None) -> Frame | Problems:
        """Return the frame that serves a call, or the reason for each graph that does not."""
        problems = []
        arguments = arguments or ArgumentCheck(call.scope)
        for active in self.variants:
            tensors = arguments.tensors_of(active.variant)
            if tensors is None or not are_same_objects(active.objects, arguments.compared_objects(active.variant)):
                continue
            numbers = numbers_of(active.variant, call.scope)
            for graph in active.graphs:
                problem = _problem(active.variant, graph.gear, tensors, numbers)
                if problem is None:
                    return self.accept(active, graph, tensors, call)
                problems.append((graph.gear.text, problem))
        return Problems(problems)

    def accept(self, active: ActiveVariant, graph: GraphCall, tensors: tuple[torch.Tensor, ...], call: Call) -> Frame:
        """Return the frame of a graph, prepared for tensors like these; `InputError` if a written one overlaps."""
        if (overlap := graph.overlap(tensors)) is not None:
            written, other = overlap
            raise InputError(
                self._name, written, f"written, and shares memory with `{other}`", "tensors that do not overlap"
            )
        if self._validate and not graph.admits(tensors):
            for sibling in active.graphs:
                sibling.accept(tensors)
            self._accept_others(active, call)
        bound_gears = [(loaded, bound) for loaded in self.variants for bound in loaded.bound_gears()]
        self.gears = [bound for _, bound in bound_gears]  # at once: other threads ask for it without a lock
        return next(bound.frame for loaded, bound in bound_gears if loaded is active and bound.gear is graph.gear)

    def _accept_others(self, present: ActiveVariant, call: Call) -> None:
        """Prepare the other variants that take such arguments, so that their first call needs no second lookup."""
        for active in self.variants:
            if active is present or any(graph.is_ready for graph in active.graphs):
                continue
            tensors = tensors_of(active.variant, call.scope)
            if tensors is not None and _are_of_its_kind(active.variant, tensors):
                for graph in active.graphs:
                    graph.accept(tensors)


def misfits(variants: Iterable[StoredVariant], call: Call) -> list[tuple[StoredVariant, Reason]]:
    """Return those of some variants that do not fit a call, each with the argument that does not."""
    return [(variant, reason) for variant in variants if (reason := misfit(variant, call.scope)) is not None]


def takes(variant: StoredVariant, call: Call, *, any_sizes: bool = True) -> bool:
    """Whether a variant is for tensors like those of a call: of any sizes and strides, or of one of its gears."""
    tensors = tensors_of(variant, call.scope)
    if tensors is None or any_sizes:
        return tensors is not None and _are_of_its_kind(variant, tensors)
    return any(find_problem(variant.inputs, gear, tensors) is None for gear in variant.gears)


def problems_of(variant: StoredVariant, call: Call) -> list[Problem | None]:
    """Return what keeps a call from each graph of a variant, None if nothing; empty if an argument check fails."""
    tensors = tensors_of(variant, call.scope)
    if tensors is None:
        return []
    numbers = numbers_of(variant, call.scope)
    return [_problem(variant, gear, tensors, numbers) for gear in variant.gears]


def _problem(
    variant: StoredVariant, gear: StoredGear, tensors: tuple[Any, ...], numbers: Mapping[str, tuple[str, float]]
) -> Problem | None:
    """Return what keeps tensors and numbers from a graph of a variant."""
    inputs = variant.inputs
    return find_problem(inputs, gear, tensors) or broken_condition(inputs, gear, tensors, numbers)


def fits_of(variant: StoredVariant, call: Call, spec: GearSpec) -> list[GearFit]:
    """Return how each graph of a variant fits a call; none if an argument check fails."""
    tensors = tensors_of(variant, call.scope)
    if tensors is None:
        return []
    from gearcache.guards.dispatch.other_gears import CallValues, gear_fits, size_relations  # a hit does not need it

    values = CallValues(tensors, numbers_of(variant, call.scope), size_relations(variant, call.scope))
    return list(gear_fits(variant, spec, call.sizes(spec), values))


def missing_gears(variants: Iterable[StoredVariant], call: Call, spec: GearSpec) -> list[tuple[int, ...]]:
    """Return the possible gears of a spec that no variant has for such a call."""
    gears: set[str] = set()
    for variant in variants:
        if takes(variant, call):
            gears |= excluded_gears(variant, call, spec)
            gears.update(fit.gear.text for fit in fits_of(variant, call, spec) if fit.serves(spec))
    return [gear for gear in spec.gears if gear_text(spec, gear) not in gears]


def takes_tensors(variant: StoredVariant, call: Call) -> bool:
    """Whether a graph of a variant takes the tensors of a call: only plain arguments may keep the call from it."""
    tensors = inputs_of(variant, call.scope)
    if tensors is None or all(find_problem(variant.inputs, gear, tensors) is not None for gear in variant.gears):
        return False
    places_of_none = [
        check.access for check in variant.call_checks if check.kind == "constant" and check.expected is None
    ]
    return not any(isinstance(place.find(call.scope), torch.Tensor) for place in places_of_none)


def excluded_gears(variant: StoredVariant, call: Call, spec: GearSpec) -> set[str]:
    """Return the requested gears that cannot exist, or at which the method raises for the ints of a call.

    The gear of the call itself is not excluded: a trace has excluded it for other ints.
    """
    gears = set(variant.impossible)
    for text, ints in variant.raising:
        found = [(Access.from_plain(path).find(call.scope), value) for path, value in ints]
        if all(isinstance(present, int) and present == value for present, value in found):
            gears.add(text)
    return gears - {gear_text(spec, call.sizes(spec))}


def _are_of_its_kind(variant: StoredVariant, tensors: tuple[Any, ...]) -> bool:
    """Whether only sizes and strides keep tensors from the graphs of a variant."""
    problem = find_problem(variant.inputs, variant.gears[0], tensors)
    return problem is None or problem.kind in ("shape", "stride")
