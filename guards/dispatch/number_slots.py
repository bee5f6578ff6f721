"""Slots that pass numbers to compiled code: one-element tensors whose memory is written before each call.

A slot serves one call at a time: a call takes one and gives it back, so threads never share one.
"""

from __future__ import annotations

from array import array

import torch

#: The memory of the numbers of one call, and the tensors over it.
Slot = tuple["array[int]", list[torch.Tensor]]


class NumberSlots:
    """The free slots of one graph."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.free: list[Slot] = []

    def make(self) -> Slot:
        """Return a new slot."""
        values = array("q", [0] * self._count)
        with torch.inference_mode(False):
            whole = torch.frombuffer(values, dtype=torch.int64)
            return values, [whole[index] for index in range(self._count)]
