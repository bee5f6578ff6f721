"""Explain why no loaded graph accepts a call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import torch

from gearcache.guards.dispatch.inputs import Problem
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredInput
from gearcache.guards.gears.expressions import holds


class Problems:
    """Why no loaded graph accepts a call; the most helpful problem is reported to the user."""

    #: Problems of a graph for the same kind of tensors precede those of a graph for other kinds.
    _ORDER = (
        "read",
        "inference",
        "grad",
        "alias",
        "rank",
        "stride",
        "shape",
        "number",
        "layout",
        "structure",
        "dtype",
        "device",
        "type",
    )

    def __init__(self, problems: Iterable[tuple[str, Problem]] = ()) -> None:
        """`problems`: one for each loaded graph that takes such arguments, with the text of its gear."""
        self._problems = tuple(problems)

    @property
    def gears(self) -> tuple[str, ...]:
        """The texts of the gears of those graphs."""
        return tuple(text for text, _ in self._problems)

    def decisive(self, gear: str | None = None) -> Problem | None:
        """Return the problem to report: of the call's own gear if that is loaded, and of the nearest graph."""
        own_problems = [problem for text, problem in self._problems if text == gear]
        problems = own_problems or [problem for _, problem in self._problems]
        if not problems:
            return None
        by_kind = {problem.kind: problem for problem in reversed(problems)}
        return next(by_kind[kind] for kind in self._ORDER if kind in by_kind)

    def nearest(self) -> Problem | None:
        """Return the problem to tell people: that of a number, as its graph takes the sizes, else the decisive one."""
        return next((problem for _, problem in self._problems if problem.kind == "number"), None) or self.decisive()

    def sentence(self) -> tuple[str, str, str]:
        """Return argument, found, allowed."""
        problem = self.decisive()
        if problem is None:
            return "?", "of a kind that the new trace does not take either", "the arguments of the first call"
        return problem.argument, problem.value, problem.allowed


def broken_condition(
    inputs: Sequence[StoredInput],
    gear: StoredGear,
    tensors: Sequence[torch.Tensor],
    numbers: Mapping[str, tuple[str, float]] = MappingProxyType({}),
) -> Problem | None:
    """Return the broken condition of a graph as a problem of shape, stride or number.

    `numbers`: the path of each number of the graph, as text, and its value.
    """
    measured = {name: (tensor, kind, dim) for name, tensor, kind, dim in (*gear.symbols, *gear.measures)}
    values = {name: getattr(tensors[tensor], kind)(dim) for name, (tensor, kind, dim) in measured.items()}
    texts = {name: f"{inputs[index].access.text}.{kind}({dim})" for name, (index, kind, dim) in measured.items()}
    values |= {name: value for name, (_, value) in numbers.items()}
    texts |= {name: text for name, (text, _) in numbers.items()}
    for text in gear.conditions:
        used_names = [name for name in values if re.search(rf"\b{name}\b", text)]
        if holds(text, {name: values[name] for name in used_names}):
            continue
        values_text = ", ".join(f"{texts[name]}={values[name]}" for name in used_names)
        allowed = re.sub(r"\b[sun]\d+\b", lambda match: texts.get(match[0], match[0]), text)
        number_names = [name for name in used_names if name in numbers]
        if number_names:
            return Problem(texts[number_names[0]], f"a number of values {values_text}", allowed, "number")
        tensor, kind, dim = measured[used_names[0]] if used_names else (0, "size", 0)
        # A stride that follows from the sizes is wrong; a free stride needs another trace, as a size does.
        tied_strides = {name for name, _, kind, _ in gear.measures if kind == "stride"}
        kind = "stride" if tied_strides.intersection(used_names) else "shape"
        tensor_input = inputs[tensor]
        return Problem(
            tensor_input.access.text, f"of sizes {values_text}", allowed, kind, dims=(dim,), stored=tensor_input
        )
    for tensor in gear.contiguous:
        if not tensors[tensor].is_contiguous():
            strides = tensors[tensor].stride()
            allowed = "a contiguous tensor (call .contiguous() on it)"
            return Problem(
                inputs[tensor].access.text, f"of strides {strides}", allowed, "stride", stored=inputs[tensor]
            )
    return None
