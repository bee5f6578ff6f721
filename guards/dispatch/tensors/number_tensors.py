"""Numbers as graphs take them: tensors of one int64 or float64, which no graph writes."""

from __future__ import annotations

from array import array

import torch

#: How many values are kept: positions in a long text; making one takes about as long as a small graph.
_MOST = 8192


class NumberTensors(dict[int, torch.Tensor]):
    """The tensor of each number that was looked up; threads may look up at once.

    Raises `OverflowError` for an int that needs more than 64 bits.
    """

    def __missing__(self, number: int) -> torch.Tensor:
        memory = array("q", [number])
        with torch.inference_mode(False):
            # No operator, such as one that makes it a scalar: within a trace its result would be a fake tensor.
            tensor = torch.frombuffer(memory, dtype=torch.int64)
        if len(self) >= _MOST:
            self.clear()
        self[number] = tensor
        return tensor


NUMBER_TENSORS = NumberTensors()


def float_tensor(number: float) -> torch.Tensor:
    """Return the tensor of a float; `TypeError` for any other number, such as a complex one."""
    return torch.frombuffer(array("d", [number]), dtype=torch.float64)
