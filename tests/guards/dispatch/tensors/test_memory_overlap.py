"""Overlap of tensors in memory."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gearcache.guards.dispatch.tensors.memory import BoundSpans, find_overlap, share_memory
from tests.support.sampled import examples

MEMORY = torch.zeros(10, 4)


@pytest.mark.parametrize(
    ("tensors", "written", "expected"),
    [
        pytest.param([MEMORY[:5], MEMORY[5:]], [0], None, id="side by side"),
        pytest.param([MEMORY[:6], MEMORY[5:]], [0], (0, 1), id="one row"),
        pytest.param([MEMORY[:6], MEMORY[5:]], [], None, id="none is written"),
        pytest.param([MEMORY, MEMORY[3]], [1], (1, 0), id="inside"),
        pytest.param([MEMORY[3], torch.zeros(4)], [0, 1], None, id="other storage"),
        pytest.param([MEMORY[:0], MEMORY], [1], None, id="empty"),
        pytest.param([MEMORY[:, :2], MEMORY[:, 2:]], [0, 1], None, id="halves"),
        pytest.param([MEMORY[:, :3], MEMORY[:, 2:]], [1], (1, 0), id="a common column"),
        pytest.param([MEMORY[:, :2], MEMORY[:, 2:], MEMORY[9, 3:]], [1], (1, 2), id="a part of a half"),
    ],
)
def test_overlap_with_a_written_tensor_is_found(
    tensors: list[torch.Tensor], written: list[int], expected: tuple[int, int] | None
) -> None:
    assert find_overlap(tensors, written) == expected


def test_a_written_tensor_that_meets_a_weight_is_found_also_when_the_weight_has_moved() -> None:
    weights = {"low": MEMORY[:3], "high": MEMORY[6:8], "inner": MEMORY[1:2], "empty": MEMORY[4:4]}
    spans = BoundSpans(weights)
    other = torch.zeros(4)
    assert spans.find_overlap([MEMORY[4:6], MEMORY[0], other], [0]) is None, "what is only read may be a weight"
    assert spans.find_overlap([other, MEMORY[2:5]], [1]) == (1, "low")
    assert spans.find_overlap([MEMORY[7:9]], [0]) == (0, "high")
    assert spans.find_overlap([MEMORY[8:]], [0]) is None
    weights["high"] = MEMORY[8:9]
    assert spans.find_overlap([MEMORY[8:]], [0]) == (0, "high")


@given(st.data())
@settings(max_examples=examples(300))
def test_two_views_share_memory_if_a_byte_is_in_both(data: st.DataObject) -> None:
    memory = torch.arange(4 * 5 * 6).reshape(4, 5, 6)

    def view() -> torch.Tensor:
        parts = []
        for size in memory.shape:
            start = data.draw(st.integers(0, size - 1))
            parts.append(slice(start, data.draw(st.integers(start + 1, size)), data.draw(st.integers(1, 2))))
        found = memory[tuple(parts)]
        return data.draw(st.sampled_from([found, found.transpose(0, 1), found[:, 0], found.unsqueeze(0)]))

    first, second = view(), view()
    is_common = not set(first.flatten().tolist()).isdisjoint(second.flatten().tolist())
    assert share_memory(first, second) or not is_common, "bytes that two tensors share are never overlooked"
