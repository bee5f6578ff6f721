"""Which gears a capture covers, and the sizes of every input at each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gearcache.ge_cache.capture.capture import capture_method
from gearcache.ge_cache.capture.captured import Capture
from gearcache.ge_cache.capture.symbols import Symbols
from gearcache.ge_cache.graphs.plan import PlannedGear, plan_gears
from gearcache.guards.gears.parse import parse_gears


class Net(nn.Module):
    def joined(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, x]) + y

    def apart(self, x: Tensor, y: Tensor) -> Tensor:
        return x.sum() + y.sum()


def _plan(
    name: str, shapes: list[tuple[int, ...]], gears: dict[str, Any], policy: str = "zip"
) -> tuple[Capture, list[PlannedGear]]:
    tensors = [torch.ones(shape) for shape in shapes]
    capture = capture_method(getattr(Net(), name), tuple(tensors), {}, method=f"Net.{name}", dynamic=True)
    return capture, plan_gears(capture, Symbols(capture.shape_env), parse_gears(gears, policy))


def _sizes(capture: Capture, gear: PlannedGear) -> list[list[int]]:
    symbols = Symbols(capture.shape_env)
    return [[symbols.value(size, gear.assignment) for size in item.sizes] for item in capture.inputs]


@pytest.mark.parametrize("gears", [{"x": {0: [2, 5]}}, {"y": {0: [4, 10]}}])
def test_a_dim_that_is_a_multiple_follows_or_is_followed(gears: dict[str, Any]) -> None:
    capture, planned = _plan("joined", [(4, 3), (8, 3)], gears)
    assert [_sizes(capture, gear) for gear in planned] == [[[2, 3], [4, 3]], [[5, 3], [10, 3]]]


def test_a_free_dim_of_the_same_index_and_size_is_assumed_to_follow() -> None:
    capture, planned = _plan("apart", [(4, 3), (4, 5)], {"x": {0: [2, 8]}})
    assert [gear.assumed for gear in planned] == [[[1, 0]], [[1, 0]]]
    assert [_sizes(capture, gear) for gear in planned] == [[[2, 3], [2, 5]], [[8, 3], [8, 5]]]
