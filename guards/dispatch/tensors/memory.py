"""Detect overlap of tensors in memory."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence

import torch


def find_overlap(tensors: Sequence[torch.Tensor], written: Sequence[int]) -> tuple[int, int] | None:
    """Return (written, other) when a written tensor may share bytes with another tensor; None otherwise.

    A compiled graph may read and write in another order than the method, which changes results when inputs overlap.
    """
    if not written:
        return None
    writes = set(written)
    spans = sorted((*_span(tensor), index) for index, tensor in enumerate(tensors))
    open_spans: list[tuple[int, int]] = []  # (end, tensor) of those that begin earlier and may reach further
    for start, end, index in spans:
        if start == end:
            continue
        open_spans = [span for span in open_spans if span[0] > start]
        for _, other in open_spans:
            if (index in writes or other in writes) and share_memory(tensors[index], tensors[other]):
                return (other, index) if other in writes else (index, other)
        open_spans.append((end, index))
    return None


def share_memory(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors whose byte ranges meet may have a byte in common.

    Views of one tensor with its strides are told apart, as are the halves or every second column of it; all others
    count as one.
    """
    first, second = sorted((tensor, other), key=lambda each: each.data_ptr())
    size = first.element_size()
    distance, rest = divmod(second.data_ptr() - first.data_ptr(), size)
    if rest or size != second.element_size() or first.stride() != second.stride():
        return True
    dims = sorted(zip(first.stride(), first.shape, second.shape, strict=True), reverse=True)
    for number, (stride, length, _) in enumerate(dims):
        inner = dims[number + 1 :]
        if stride == 0:
            return True
        steps, distance = divmod(distance, stride)
        if sum((size - 1) * step for step, size, _ in inner) >= stride:
            return True  # rows of the first tensor reach into each other
        if distance + sum((size - 1) * step for step, _, size in inner) >= stride:
            return True  # rows of the second one lie across two of the first
        if steps >= length:
            return False
    return distance == 0


class BoundSpans:
    """The memory ranges of the weights that a graph reads; computed anew when one of them has moved."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors
        self._places: list[int] = []
        #: Begin, end and name of each weight in order, and the furthest end up to each.
        self._spans: list[tuple[int, int, str]] = []
        self._ends: list[int] = []

    def find_overlap(self, tensors: Sequence[torch.Tensor], written: Sequence[int]) -> tuple[int, str] | None:
        """Return (written tensor, weight) when they may share bytes; None otherwise."""
        self._follow()
        for index in written:
            start, end = _span(tensors[index])
            before = bisect.bisect_left(self._spans, (end,))
            if start < end and before and self._ends[before - 1] > start:
                for _, last, name in self._spans[:before]:
                    if last > start and share_memory(tensors[index], self._tensors[name]):
                        return index, name
        return None

    def _follow(self) -> None:
        places = [tensor.data_ptr() for tensor in self._tensors.values()]
        if places != self._places:
            spans = sorted((*_span(tensor), name) for name, tensor in self._tensors.items() if tensor.numel())
            ends = list(itertools.accumulate((end for _, end, _ in spans), max))
            self._spans, self._ends = spans, ends
            self._places = places  # last: another thread takes the others as they are once it sees these


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    if tensor.numel() == 0:
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()
