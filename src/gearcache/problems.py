"""Why no loaded graph takes a call."""

from __future__ import annotations

import torch

from gearcache.guards.expressions import expression_function
from gearcache.guards.graph_call import GraphCall
from gearcache.guards.inputs import Problem


class Problems:
    """Why no loaded graph takes a call; the most telling one is what the user is told."""

    _ORDER = ("type", "device", "dtype", "grad", "layout", "alias", "rank", "stride", "shape")

    def __init__(self) -> None:
        self._found: list[tuple[str, Problem]] = []
        self.is_gear_miss = False
        self.is_assumption = False

    def add(self, problem: Problem, gear: str) -> None:
        """Note one, and the gear that it is about."""
        self._found.append((gear, problem))

    def decisive(self, gear: str | None = None) -> Problem | None:
        """Return the problem to tell: of the call's own gear if that is loaded; a dtype before a shape."""
        own = [problem for text, problem in self._found if text == gear]
        found = own or [problem for _, problem in self._found]
        if not found:
            return None
        by_kind = {problem.kind: problem for problem in reversed(found)}
        return next(by_kind[kind] for kind in self._ORDER if kind in by_kind)

    def sentence(self) -> tuple[str, str, str]:
        """Return argument, found, allowed."""
        problem = self.decisive()
        if problem is None:
            return "?", "of a kind that the new trace does not take either", "the arguments of the first call"
        return problem.argument, problem.found, problem.allowed


def broken_condition(graph: GraphCall, tensors: tuple[torch.Tensor, ...]) -> Problem | None:
    """Return the condition of a dynamic graph that a call breaks, as a problem of shape."""
    sizes = {name: tensors[tensor].size(dim) for name, tensor, dim in graph.gear.symbols}
    for text in graph.gear.conditions:
        if not expression_function(text, tuple(sizes))(**sizes):
            named = ", ".join(
                f"{graph.variant.inputs[tensor].access.text}.size({dim})={sizes[name]}"
                for name, tensor, dim in graph.gear.symbols
            )
            _, tensor, dim = graph.gear.symbols[0]
            argument = graph.variant.inputs[tensor].access.text
            return Problem(argument, f"of sizes {named}", text, "shape", dims=(dim,))
    return None
