"""Overlap of tensors in memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch


def find_overlap(tensors: Sequence[torch.Tensor], written: Sequence[int]) -> tuple[int, int] | None:
    """Return (written, other) when a written tensor's byte range meets another tensor's; None otherwise.

    A compiled graph may read and write in another order than the method, which shows when inputs overlap.
    Interleaved views that share a range but no byte are taken for overlapping.
    """
    if not written:
        return None
    spans = sorted((start, end, index) for index, tensor in enumerate(tensors) for start, end in [_span(tensor)])
    writes = set(written)
    for (_, end, left), (start, _, right) in itertools.pairwise(spans):
        if start < end and (left in writes or right in writes):
            return (left, right) if left in writes else (right, left)
    return None


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    if tensor.numel() == 0:
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()
