"""Gear specs: merging, order, limits and paths."""

from __future__ import annotations

import pytest

from gearcache.errors import GearSpecError
from gearcache.guards.gears.parse import Axis, gear_text, parse_gears


@pytest.mark.parametrize(
    ("path", "name", "matches"),
    [
        ("x", "x", True),
        ("ks[*]", "ks['a']", True),
        ("ks[*]", "ks[0][1]", False),
        ("cache.layers[*].keys", "cache.layers[12].keys", True),
        ("cache.layers[*].keys", "cacheXlayers[12].keys", False),
    ],
)
def test_a_path_covers_what_it_says(path: str, name: str, matches: bool) -> None:
    assert Axis(path, 0, (1,)).matches(name) is matches


def test_a_spec_does_not_depend_on_the_order_of_arguments() -> None:
    left = parse_gears({"x": {0: [1, 2]}, "y": {0: [3, 4]}})
    right = parse_gears({"y": {0: [3, 4]}, "x": {0: [1, 2]}})
    assert (left.to_plain(), left) == (right.to_plain(), right)
    assert [gear_text(left, gear) for gear in left.gears] == [gear_text(right, gear) for gear in right.gears]
    assert left.to_plain() != parse_gears({"x": {0: [2, 1]}, "y": {0: [3, 4]}}).to_plain()
    assert left.to_plain() != parse_gears({"x": {0: [1, 2]}, "y": {0: [3, 4]}}, "product").to_plain()


def test_at_most_a_hundred_gears_are_formed() -> None:
    assert len(parse_gears({"x": {0: [*range(1, 11)], 1: [*range(1, 11)]}}, "product").gears) == 100
    with pytest.raises(GearSpecError, match="110 gears; at most 100"):
        parse_gears({"x": {0: [*range(1, 12)], 1: [*range(1, 11)]}}, "product")
