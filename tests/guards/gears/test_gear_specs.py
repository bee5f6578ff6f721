"""Gear specs: merging, order, limits and paths."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gearcache.errors import GearSpecError
from gearcache.guards.gears.parse import Axis, gears_of_arguments, parse_gears, set_dim_gears

_SIZES = st.lists(st.integers(1, 64), min_size=1, max_size=5)


@given(_SIZES, _SIZES)
def test_product_takes_every_distinct_combination_once(left: list[int], right: list[int]) -> None:
    gears = parse_gears({"x": {0: left}, "y": {1: right}}, "product").gears
    assert len(gears) == len(set(gears))
    assert set(gears) == set(itertools.product(left, right))


@given(_SIZES)
def test_zip_pairs_by_position_in_the_user_s_order(sizes: list[int]) -> None:
    gears = parse_gears({"x": {0: sizes}, "y": {1: [2 * size for size in sizes]}}).gears
    assert gears == tuple(dict.fromkeys((size, 2 * size) for size in sizes))


@pytest.mark.parametrize(
    ("path", "name", "matches"),
    [
        ("x", "x", True),
        ("ks[*]", "ks['a']", True),
        ("ks[*]", "ks[0][1]", False),
        ("ks[*]", "ks", False),
        ("ks[0]", "ks[1]", False),
        ("cache.layers[*].keys", "cache.layers[12].keys", True),
        ("cache.layers[*].keys", "cacheXlayers[12].keys", False),
    ],
)
def test_a_path_covers_what_it_says(path: str, name: str, matches: bool) -> None:
    assert Axis(path, 0, (1,)).matches(name) is matches


def test_the_plain_form_does_not_depend_on_the_order_of_arguments() -> None:
    left = parse_gears({"x": {0: [1, 2]}, "y": {0: [3, 4]}})
    right = parse_gears({"y": {0: [3, 4]}, "x": {0: [1, 2]}})
    assert left.to_plain() == right.to_plain()
    assert left.to_plain() != parse_gears({"x": {0: [2, 1]}, "y": {0: [3, 4]}}).to_plain()
    assert left.to_plain() != parse_gears({"x": {0: [1, 2]}, "y": {0: [3, 4]}}, "product").to_plain()


def test_at_most_a_hundred_gears_are_formed() -> None:
    assert len(parse_gears({"x": {0: [*range(1, 11)], 1: [*range(1, 11)]}}, "product").gears) == 100
    with pytest.raises(GearSpecError, match="110 gears; at most 100"):
        parse_gears({"x": {0: [*range(1, 12)], 1: [*range(1, 11)]}}, "product")


def test_marks_on_tensors_become_axes() -> None:
    x, y = torch.ones(2, 3), torch.ones(4)
    set_dim_gears(x, {1: [3, 6], 0: (2, 4)})
    assert gears_of_arguments({"x": x, "y": y}) == (Axis("x", 1, (3, 6)), Axis("x", 0, (2, 4)))


def test_a_key_of_a_path_may_stand_in_either_quotes() -> None:
    for path in ("state['keys']", 'state["keys"]'):
        (axis,) = parse_gears({path: {0: [2, 4]}}, "zip").axes
        assert axis.matches("state['keys']")
        assert not axis.matches("state['key']")
