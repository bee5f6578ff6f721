"""Calls whose tensors have other strides than those of a gear, served from copies (`on_strides="copy"`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from msgspec.structs import replace

from gearcache.guards.dispatch.adapted_gear import AdaptedGear, Runner, Unfit
from gearcache.guards.dispatch.stored.variant import StoredGear, StoredVariant


def copied_gear(
    variant: StoredVariant, gear: StoredGear, run: Runner, tensors: Sequence[torch.Tensor], text: str
) -> AdaptedGear | Unfit:
    """Return a gear that takes any strides, or why there is none: an `Adapter`.

    An input that the graph writes, or that shares memory with a result, is never copied.
    """
    indices = _copyable(variant, gear)
    if not indices:
        return Unfit("has no input that may be copied")
    strides: list[list[int | None]] = [list(row) for row in gear.strides]
    for index in indices:
        strides[index] = [None] * len(strides[index])
    work = sum(math.prod(_without_none(row)) for row in gear.sizes)
    return AdaptedGear(replace(gear, strides=strides), _runner(run, gear, indices), work)


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


def _runner(run: Runner, gear: StoredGear, indices: list[int]) -> Runner:
    forms = [
        (index, tuple(map(int, _without_none(gear.sizes[index]))), tuple(_without_none(gear.strides[index])))
        for index in indices
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
