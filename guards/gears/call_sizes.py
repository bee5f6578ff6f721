"""The sizes that a call has in the dims of a gear spec."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from gearcache.guards.gears.spec import GearSpec


def call_sizes(spec: GearSpec, tensors: Mapping[str, torch.Tensor]) -> tuple[int, ...]:
    """Return one size per axis of a spec, for tensors by argument path; fewer where the call lacks such a dim."""
    sizes = []
    for axis in spec.axes:
        found = [tensor for path, tensor in tensors.items() if axis.matches(path)]
        if found and axis.dim < found[0].dim():
            sizes.append(found[0].size(axis.dim))
    return tuple(sizes)
