"""Serves padded calls of one binding: each of their sizes becomes a gear in the dispatch."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from msgspec import Struct

from gearcache.guards.dispatch.fills import Fills
from gearcache.guards.dispatch.graph_call import GraphCall
from gearcache.guards.dispatch.inputs import Problem, find_problem
from gearcache.guards.dispatch.padded_call import PaddedGear, padded_gear
from gearcache.guards.dispatch.stored.variant import StoredVariant
from gearcache.serving.call.call import Call
from gearcache.serving.find.activate import ActiveVariant, tensors_of

#: The most padded sizes that are kept ready; each costs a table entry, a tensor check and a frame.
MAX_PADDED = 256


class Padded(Struct, frozen=True):
    """A graph of a loaded variant for the sizes of a call, and the call's inputs for it."""

    active: ActiveVariant
    graph: GraphCall
    tensors: tuple[torch.Tensor, ...]


class Unpadded(Struct, frozen=True):
    """No loaded graph could be padded to."""

    #: Why not to the gears of the call's own variant; None if that variant is not loaded.
    reason: str | None = None
    #: Another problem of the call's tensors.
    problem: Problem | None = None


class PaddedCalls:
    """Makes padded gears on demand and drops the oldest. Called under the lock of its binding's owner."""

    def __init__(self, fills: Fills) -> None:
        self.fills = fills
        self._padded_graphs: deque[tuple[ActiveVariant, GraphCall]] = deque()

    def add(self, variants: Sequence[ActiveVariant], call: Call, text: str) -> Padded | Unpadded:
        """Make a gear of the call's sizes, called `text`, from the smallest loaded gear that holds it."""
        reason, other = None, None
        padded_ids = {id(graph) for _, graph in self._padded_graphs}
        candidates: list[tuple[PaddedGear, ActiveVariant, GraphCall, tuple[torch.Tensor, ...]]] = []
        for active in variants:
            if (tensors := _given(active.variant, call)) is None:
                continue
            for graph in active.graphs:
                if id(graph) in padded_ids:
                    continue
                gear_or_reason = padded_gear(active.variant, graph.gear, graph.runner, tensors, self.fills, text)
                if isinstance(gear_or_reason, str):
                    reason = gear_or_reason
                    continue
                problem = find_problem(active.variant.inputs, gear_or_reason.gear, tensors)
                if problem is None:
                    candidates.append((gear_or_reason, active, graph, tensors))
                else:
                    other = problem
        if not candidates:
            # For a call that is too large for all gears, those of a size of 1 differ in a dim that they do not fill.
            is_of_size = reason is not None and other is not None and other.kind == "shape"
            return Unpadded(reason, None if is_of_size else other)
        smallest, active, graph, tensors = min(candidates, key=lambda item: item[0].work)
        padded = graph.resized(smallest.gear, smallest.run)
        active.graphs.append(padded)
        self._padded_graphs.append((active, padded))
        if len(self._padded_graphs) > MAX_PADDED:
            self._forget(*self._padded_graphs.popleft())
        return Padded(active, padded, tensors)

    def obstacle(self, variants: Sequence[StoredVariant], call: Call) -> str:
        """Return why no gear of some stored variants can be padded to; empty if one can, or none takes such a call."""
        reason = ""
        for variant in variants:
            if (tensors := _given(variant, call)) is None:
                continue
            for gear in variant.gears:
                padded = padded_gear(variant, gear, _not_run, tensors, self.fills, "")
                if isinstance(padded, PaddedGear) and find_problem(variant.inputs, padded.gear, tensors) is None:
                    return ""
                reason = padded if isinstance(padded, str) else reason
        return reason

    def _forget(self, active: ActiveVariant, graph: GraphCall) -> None:
        active.graphs = [item for item in active.graphs if item is not graph]


def _given(variant: StoredVariant, call: Call) -> tuple[torch.Tensor, ...] | None:
    """Return the tensors of a call for a variant; None if it does not take such a call."""
    tensors = tensors_of(variant, call.scope)
    return tensors if tensors is not None and all(isinstance(tensor, torch.Tensor) for tensor in tensors) else None


def _not_run(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    raise AssertionError("only asked whether it can be padded to")
