"""Serves calls whose tensors have other strides than those of a gear, from copies (`on_strides="copy"`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from msgspec import Struct
from msgspec.structs import replace

from gearcache.guards.dispatch.graph_call import GraphCall, Runner
from gearcache.guards.dispatch.inputs import find_problem
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredVariant
from gearcache.serving.call.call import Call
from gearcache.serving.find.activate import ActiveVariant, tensors_of


class Copied(Struct, frozen=True):
    """A graph of a loaded variant that takes any strides, and the call's inputs for it."""

    active: ActiveVariant
    graph: GraphCall
    tensors: tuple[torch.Tensor, ...]


def add_copied(variants: Sequence[ActiveVariant], call: Call) -> Copied | None:
    """Make a gear of the call's sizes and of any strides; None if copies do not make the call fit a loaded one.

    An input that the graph writes, or that shares memory with a result, is never copied.
    """
    for active in variants:
        tensors = tensors_of(active.variant, call.scope)
        if tensors is None:
            continue
        for graph in active.graphs:
            inputs = _copyable(active.variant, graph.gear)
            strides: list[list[int | None]] = [list(row) for row in graph.gear.strides]
            for index in inputs:
                strides[index] = [None] * len(strides[index])
            gear = replace(graph.gear, strides=strides)
            if inputs and find_problem(active.variant.inputs, gear, tensors) is None:
                copied = graph.resized(gear, _runner(graph.runner, graph.gear, inputs))
                active.graphs.append(copied)
                return Copied(active, copied, tensors)
    return None


def _copyable(variant: StoredVariant, gear: StoredGear) -> list[int]:
    """Return the inputs of a static graph that may be copied."""
    if gear.is_dynamic:
        return []
    uncopied = {form[1] for form in gear.results if form[0].startswith("input")} | {*gear.written, *gear.cloned}
    return [
        index
        for index, stored_input in enumerate(variant.inputs)
        if index not in uncopied
        and stored_input.computed
        and not stored_input.is_weight
        and gear.strides[index]
        and None not in gear.strides[index]  # else it takes any strides already
        and _is_contiguous(_without_none(gear.sizes[index]), _without_none(gear.strides[index]))
    ]


def _is_contiguous(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a graph is for a contiguous tensor: with another, its `contiguous()` copies where a call may not."""
    return torch.empty_strided(sizes, strides, device="meta").is_contiguous()


def _runner(run: Runner, gear: StoredGear, inputs: list[int]) -> Runner:
    forms = [
        (index, tuple(map(int, _without_none(gear.sizes[index]))), tuple(_without_none(gear.strides[index])))
        for index in inputs
    ]

    def run_copied(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        copies = list(tensors)
        with torch.no_grad():
            for index, sizes, strides in forms:
                tensor = copies[index]
                if tensor.stride() != strides:
                    copy = torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=tensor.device)
                    copies[index] = copy.copy_(tensor)
        return run(copies)

    return run_copied


def _without_none(sizes: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(size for size in sizes if size is not None)
