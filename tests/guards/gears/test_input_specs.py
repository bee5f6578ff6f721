"""Specs of arguments: what a `TensorSpec` may be, and which sizes stand for a first call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gearcache import Symbol, TensorSpec
from gearcache.errors import GearSpecError
from gearcache.guards.gears.example_sizes import ExampleSizes
from gearcache.guards.gears.parse import parse_gears


@pytest.mark.parametrize(
    "given, words",
    [
        ((None, torch.int64), "shape is None; it must be a tuple.*a tensor of any rank cannot be declared"),
        (((-1,), torch.int64), r"shape\[0\] is -1; it must be an int of at least 1, a Symbol.*or None for any size"),
        (((2,), "int64"), r"dtype is 'int64'; it must be a torch\.dtype"),
        (((2,), torch.int64, "nowhere"), "device is 'nowhere'"),
    ],
)
def test_a_spec_that_cannot_be_is_refused(given: tuple[Any, ...], words: str) -> None:
    with pytest.raises(GearSpecError, match=words):
        TensorSpec(*given)


def _sizes(gears: dict[str, Any], fixed: set[int] | None = None) -> dict[tuple[str, int], int | None]:
    sizes = ExampleSizes(parse_gears(gears), fixed or set())
    return {(path, dim): sizes.of(path, dim) for path, dims in gears.items() for dim in range(len(dims))}


def test_dims_of_one_symbol_have_one_size_and_others_differ() -> None:
    a, b, each = Symbol(), Symbol(), Symbol(unique=False)
    found = _sizes({"x": (a, b, 2 * a), "y": (a, each, each, None)}, {18})
    assert found[("x", 0)] == found[("y", 0)] == 17
    assert found[("x", 2)] == 34
    rest = [found["x", 1], found["y", 1], found["y", 2], found["y", 3]]
    assert len({17, 18, *rest}) == 6


@pytest.mark.parametrize(
    "options, size",
    [({"max": 4}, 4), ({"max": 1}, 1), ({"min": 2, "max": 10**12}, 17), ({"divisor": 64}, 64), ({"min": 100}, 100)],
)
def test_a_size_is_one_that_its_symbol_allows(options: dict[str, int], size: int) -> None:
    assert _sizes({"x": (Symbol(**options),)}) == {("x", 0): size}
