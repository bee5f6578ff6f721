"""The loaded variants of one binding, and which of their graphs serves a call."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct

from gearcache.errors import InputError
from gearcache.guards.access import Scope
from gearcache.guards.dispatch.function import BoundGear, are_same_objects
from gearcache.guards.dispatch.graph_call import GraphCall
from gearcache.guards.dispatch.inputs import Problems
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.guards.evidence.reason import Reason
from gearcache.serving.call.call import Call
from gearcache.serving.find.activate import ActiveVariant
from gearcache.serving.find.basis import Basis
from gearcache.serving.find.fit import ArgumentCheck, are_of_its_kind, numbers_of, problem_of, tensors_of

if TYPE_CHECKING:
    pass

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

    def stored_variants(self) -> list[StoredVariant]:
        """Return the loaded variants as they are stored."""
        return [active.variant for active in self.variants]

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
        arguments = ArgumentCheck(call)
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

    def find(self, arguments: ArgumentCheck) -> Frame | Problems:
        """Return the frame that serves a call with these arguments, or the reason for each graph that does not."""
        call, problems = arguments.call, []
        for active in self.variants:
            tensors = arguments.tensors_of(active.variant)
            if tensors is None or not are_same_objects(active.objects, arguments.compared_objects(active.variant)):
                continue
            numbers = numbers_of(active.variant, call)
            for graph in active.graphs:
                problem = problem_of(active.variant, graph.gear, tensors, numbers)
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
            tensors = tensors_of(active.variant, call)
            if tensors is not None and are_of_its_kind(active.variant, tensors):
                for graph in active.graphs:
                    graph.accept(tensors)
