"""Serves padded calls of one binding: each of their sizes becomes a gear in the dispatch."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from msgspec import Struct

from gearcache.guards.dispatch.fills import Fills
from gearcache.guards.dispatch.graph_call import GraphCall
from gearcache.guards.dispatch.inputs import Problem, find_problem
from gearcache.guards.dispatch.padded_call import PaddedGear, Runner, padded_gear
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredVariant
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
        obstacles = []
        padded_ids = {id(graph) for _, graph in self._padded_graphs}
        candidates: list[tuple[PaddedGear, ActiveVariant, GraphCall, tuple[torch.Tensor, ...]]] = []
        for active in variants:
            if (tensors := _given(active.variant, call)) is None:
                continue
            for graph in active.graphs:
                if id(graph) in padded_ids:
                    continue
                attempt = self._attempt(active.variant, graph.gear, graph.runner, tensors, text)
                if isinstance(attempt, PaddedGear):
                    candidates.append((attempt, active, graph, tensors))
                else:
                    obstacles.append(attempt)
        if not candidates:
            return _unpadded(obstacles)
        smallest, active, graph, tensors = min(candidates, key=lambda item: item[0].work)
        padded = graph.resized(smallest.gear, smallest.run)
        active.graphs.append(padded)
        self._padded_graphs.append((active, padded))
        if len(self._padded_graphs) > MAX_PADDED:
            self._forget(*self._padded_graphs.popleft())
        return Padded(active, padded, tensors)

    def obstacle(self, variants: Sequence[StoredVariant], call: Call) -> Unpadded | None:
        """Return why no gear of some stored variants can be padded to; None if one can."""
        obstacles = []
        for variant in variants:
            if (tensors := _given(variant, call)) is None:
                continue
            for gear in variant.gears:
                attempt = self._attempt(variant, gear, _not_run, tensors, "")
                if isinstance(attempt, PaddedGear):
                    return None
                obstacles.append(attempt)
        return _unpadded(obstacles)

    def _attempt(
        self, variant: StoredVariant, gear: StoredGear, run: Runner, tensors: tuple[torch.Tensor, ...], text: str
    ) -> PaddedGear | Problem | str:
        """Return a gear padded to a larger one; else why there is none, or why it does not take the tensors."""
        padded = padded_gear(variant, gear, run, tensors, self.fills, text)
        return padded if isinstance(padded, str) else find_problem(variant.inputs, padded.gear, tensors) or padded

    def _forget(self, active: ActiveVariant, graph: GraphCall) -> None:
        active.graphs = [item for item in active.graphs if item is not graph]


def _unpadded(obstacles: Sequence[Problem | str]) -> Unpadded:
    """Return why a call is not padded: the last reason and the last problem of its tensors."""
    reason = next((item for item in reversed(obstacles) if isinstance(item, str)), None)
    problem = next((item for item in reversed(obstacles) if isinstance(item, Problem)), None)
    # For a call that is too large for all gears, those of a size of 1 differ in a dim that they do not fill.
    is_of_size = reason is not None and problem is not None and problem.kind == "shape"
    return Unpadded(reason, None if is_of_size else problem)


def _given(variant: StoredVariant, call: Call) -> tuple[torch.Tensor, ...] | None:
    """Return the tensors of a call for a variant; None if it does not take such a call."""
    tensors = tensors_of(variant, call.scope)
    return tensors if tensors is not None and all(isinstance(tensor, torch.Tensor) for tensor in tensors) else None


def _not_run(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    raise AssertionError("only asked whether it can be padded to")
