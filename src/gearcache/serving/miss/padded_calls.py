"""Serves calls of one binding by graphs of larger gears, from padded tensors. Each becomes a gear in the dispatch."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from msgspec import Struct

from gearcache.guards.dispatch.fills import Fills
from gearcache.guards.dispatch.graph_call import GraphCall, Runner
from gearcache.guards.dispatch.inputs import Problem, find_problem
from gearcache.guards.dispatch.padded_call import PaddedGear, Unfit, padded_gear
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredVariant
from gearcache.serving.call.call import Call
from gearcache.serving.find.activate import ActiveVariant
from gearcache.serving.find.fit import tensors_of

#: The most padded gears that are kept ready; each costs a table entry, a tensor check and a frame.
MAX_PADDED = 256
#: Problems of tensors whose graph is another one.
_OF_OTHERS = ("shape", "rank")


class PaddedCall(Struct, frozen=True):
    """A graph of a loaded variant for a call, and the call's inputs for it."""

    active: ActiveVariant
    graph: GraphCall
    tensors: tuple[torch.Tensor, ...]


class Obstacle(Struct, frozen=True):
    """Why a call was padded to no graph: a problem of its tensors, or a reason of a gear; both None without graphs."""

    reason: str | None = None
    problem: Problem | None = None


class PaddedCalls:
    """Makes padded gears on demand and drops the oldest. Called under the lock of its binding's owner."""

    def __init__(self, fills: Fills) -> None:
        self._fills = fills
        self._graphs: deque[tuple[ActiveVariant, GraphCall]] = deque()

    def add(self, variants: Sequence[ActiveVariant], call: Call, text: str) -> PaddedCall | Obstacle:
        """Make a gear for a call, called `text`, from the smallest loaded gear that it can be padded to."""
        obstacles: list[Problem | Unfit] = []
        padded_ids = {id(graph) for _, graph in self._graphs}
        candidates: list[tuple[PaddedGear, ActiveVariant, GraphCall, tuple[torch.Tensor, ...]]] = []
        for active in variants:
            if (tensors := _given(active.variant, call)) is None:
                continue
            for graph in active.graphs:
                if id(graph) in padded_ids:
                    continue
                attempt = _attempt(active.variant, graph.gear, graph.runner, tensors, text, self._fills)
                if isinstance(attempt, PaddedGear):
                    candidates.append((attempt, active, graph, tensors))
                else:
                    obstacles.append(attempt)
        if not candidates:
            return _obstacle(obstacles)
        smallest, active, graph, tensors = min(candidates, key=lambda item: item[0].work)
        padded = graph.resized(smallest.gear, smallest.run)
        active.graphs.append(padded)
        self._graphs.append((active, padded))
        if len(self._graphs) > MAX_PADDED:
            self._forget(*self._graphs.popleft())
        return PaddedCall(active, padded, tensors)

    def _forget(self, active: ActiveVariant, graph: GraphCall) -> None:
        # In place: the same trace loaded for other objects has the same list.
        active.graphs[:] = [item for item in active.graphs if item is not graph]


def obstacle_of(variants: Sequence[StoredVariant], call: Call, fills: Fills) -> Obstacle | None:
    """Return why a call can be padded to no gear of some stored variants; None if it can."""
    obstacles: list[Problem | Unfit] = []
    for variant in variants:
        if (tensors := _given(variant, call)) is None:
            continue
        for gear in variant.gears:
            attempt = _attempt(variant, gear, _not_run, tensors, "", fills)
            if isinstance(attempt, PaddedGear):
                return None
            obstacles.append(attempt)
    return _obstacle(obstacles)


def _attempt(
    variant: StoredVariant,
    gear: StoredGear,
    run: Runner,
    tensors: tuple[torch.Tensor, ...],
    text: str,
    fills: Fills,
) -> PaddedGear | Problem | Unfit:
    """Return a padded gear; else why there is none, or why it does not take the tensors."""
    padded = padded_gear(variant, gear, run, tensors, text, fills)
    return padded if isinstance(padded, Unfit) else find_problem(variant.inputs, padded.gear, tensors) or padded


def _obstacle(obstacles: Sequence[Problem | Unfit]) -> Obstacle:
    """Return the most helpful obstacle: of a graph for such tensors before those of others."""
    problems = [item for item in obstacles if isinstance(item, Problem)]
    of_such = [problem for problem in problems if problem.kind not in _OF_OTHERS]
    if of_such:
        return Obstacle(problem=of_such[-1])
    reasons = sorted((item for item in obstacles if isinstance(item, Unfit)), key=lambda item: not item.is_minor)
    return Obstacle(reasons[-1].reason) if reasons else Obstacle(problem=problems[-1] if problems else None)


def _given(variant: StoredVariant, call: Call) -> tuple[torch.Tensor, ...] | None:
    """Return the tensors of a call for a variant; None if it does not take such a call."""
    tensors = tensors_of(variant, call)
    return tensors if tensors is not None and all(isinstance(tensor, torch.Tensor) for tensor in tensors) else None


def _not_run(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    raise AssertionError("only asked whether it can be padded to")
