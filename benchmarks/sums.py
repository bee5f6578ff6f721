"""A graph that costs next to nothing, with as many input tensors as wanted."""

from __future__ import annotations

import torch


def add(x: torch.Tensor, rest: list[torch.Tensor]) -> torch.Tensor:
    """Return the sum of all."""
    for tensor in rest:
        x = x + tensor
    return x


class Sum(torch.nn.Module):
    """The same as a method."""

    def add(self, x: torch.Tensor, rest: list[torch.Tensor]) -> torch.Tensor:
        """Return the sum of all."""
        return add(x, rest)

    def shifted(self, x: torch.Tensor, n: int) -> torch.Tensor:
        """Return the sum of a tensor and an int."""
        return x + n
