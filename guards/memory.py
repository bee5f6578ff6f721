"""Overlap of tensors in memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def find_overlap(tensors: Sequence[torch.Tensor], written: Sequence[int]) -> tuple[int, int] | None:
    """Return (written, other) when a written tensor's byte range meets another tensor's; None otherwise.

    A compiled graph may read and write in another order than the method, which shows when inputs overlap.
    Interleaved views that share a range but no byte are taken for overlapping.
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


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    if tensor.numel() == 0:
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()
