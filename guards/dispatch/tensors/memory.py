"""Detect overlap of tensors in memory."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

import torch


def find_overlap(tensors: Sequence[torch.Tensor], written: Sequence[int]) -> tuple[int, int] | None:
    """Return (written, other) when a written tensor's byte range meets another tensor's; None otherwise.

    A compiled graph may read and write in another order than the method, which changes results when inputs overlap.
    Interleaved views that share a range but no byte count as overlapping.
    """
    if not written:
        return None
    writes = set(written)
    spans = sorted((*_span(tensor), index) for index, tensor in enumerate(tensors))
    furthest, furthest_written = (0, -1), (0, -1)  # (end, tensor) among those that begin earlier
    for start, end, index in spans:
        if start < end:
            if start < furthest_written[0]:
                return furthest_written[1], index
            if index in writes and start < furthest[0]:
                return index, furthest[1]
            furthest = max(furthest, (end, index))
            if index in writes:
                furthest_written = max(furthest_written, (end, index))
    return None


class BoundSpans:
    """The memory ranges of the weights that a graph reads; computed anew when one of them has moved."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors
        self._places: list[int] = []
        #: Begin, end and name of each weight in order, and the furthest end up to each.
        self._spans: list[tuple[int, int, str]] = []
        self._ends: list[int] = []

    def find_overlap(self, tensors: Sequence[torch.Tensor], written: Sequence[int]) -> tuple[int, str] | None:
        """Return (written tensor, weight) when their byte ranges meet; None otherwise."""
        self._follow()
        for index in written:
            start, end = _span(tensors[index])
            before = bisect.bisect_left(self._spans, (end,))
            if start < end and before and self._ends[before - 1] > start:
                return index, next(name for _, last, name in self._spans[:before] if last > start)
        return None

    def _follow(self) -> None:
        places = [tensor.data_ptr() for tensor in self._tensors.values()]
        if places != self._places:
            spans = sorted((*_span(tensor), name) for name, tensor in self._tensors.items() if tensor.numel())
            self._places, self._spans, self._ends = places, spans, []
            for _, end, _ in spans:
                self._ends.append(max(end, self._ends[-1] if self._ends else end))


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    if tensor.numel() == 0:
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()
