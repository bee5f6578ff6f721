"""Why no loaded graph takes a call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import torch

from gearcache.guards.dispatch.inputs import Problem
from gearcache.guards.dispatch.variant import StoredGear, StoredInput
from gearcache.guards.gears.expressions import expression_function


class Problems:
    """Why no loaded graph takes a call; the most telling one is what the user is told."""

    #: What a graph for the same kind of tensors says comes before what one for others says.
    _ORDER = (
        "read",
        "inference",
        "grad",
        "alias",
        "rank",
        "stride",
        "shape",
        "layout",
        "structure",
        "dtype",
        "device",
        "type",
    )

    def __init__(self, found: Iterable[tuple[str, Problem]] = ()) -> None:
        """`found`: one for each loaded graph that takes such arguments, beside the text of its gear."""
        self._found = tuple(found)

    @property
    def gears(self) -> tuple[str, ...]:
        """The texts of the gears of those graphs."""
        return tuple(text for text, _ in self._found)

    def decisive(self, gear: str | None = None) -> Problem | None:
        """Return the problem to tell: of the call's own gear if that is loaded, and of the nearest graph."""
        own = [problem for text, problem in self._found if text == gear]
        found = own or [problem for _, problem in self._found]
        if not found:
            return None
        by_kind = {problem.kind: problem for problem in reversed(found)}
        return next(by_kind[kind] for kind in self._ORDER if kind in by_kind)

    def are_of(self, kind: str) -> bool:
        """Whether one of them is of a kind."""
        return any(problem.kind == kind for _, problem in self._found)

    def sentence(self) -> tuple[str, str, str]:
        """Return argument, found, allowed."""
        problem = self.decisive()
        if problem is None:
            return "?", "of a kind that the new trace does not take either", "the arguments of the first call"
        return problem.argument, problem.found, problem.allowed


def broken_condition(
    inputs: Sequence[StoredInput], gear: StoredGear, tensors: Sequence[torch.Tensor]
) -> Problem | None:
    """Return the condition of a dynamic graph that a call breaks, as a problem of shape or stride."""
    named = {name: (tensor, kind, dim) for name, tensor, kind, dim in (*gear.symbols, *gear.measures)}
    values = {name: getattr(tensors[tensor], kind)(dim) for name, (tensor, kind, dim) in named.items()}
    for text in gear.conditions:
        used = [name for name in named if re.search(rf"\b{name}\b", text)]
        if not expression_function(text, tuple(used))(**{name: values[name] for name in used}):
            readable = {
                name: f"{inputs[named[name][0]].access.text}.{named[name][1]}({named[name][2]})" for name in used
            }
            found = ", ".join(f"{readable[name]}={values[name]}" for name in used)
            allowed = text
            for name, words in readable.items():
                allowed = re.sub(rf"\b{name}\b", words, allowed)
            tensor, kind, dim = named[used[0]] if used else (0, "size", 0)
            # A stride that follows from the sizes is wrong; a free one takes another trace, as a size does.
            tied = {name for name, _, kind, _ in gear.measures if kind == "stride"}
            kind = "stride" if tied.intersection(used) else "shape"
            return Problem(inputs[tensor].access.text, f"of sizes {found}", allowed, kind, dims=(dim,))
    for tensor in gear.contiguous:
        if not tensors[tensor].is_contiguous():
            strides = tensors[tensor].stride()
            allowed = "a contiguous tensor (call .contiguous() on it)"
            return Problem(inputs[tensor].access.text, f"of strides {strides}", allowed, "stride")
    return None
