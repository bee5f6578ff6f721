"""Gears as people read them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearcache.guards.gears.short_names import short_names
from gearcache.guards.gears.spec import Axis, GearSpec, gear_text
from tests.support.sampled import examples


def texts(*rows: dict[str, int]) -> list[str]:
    return [", ".join(f"{dim}={size}" for dim, size in row.items()) for row in rows]


def tied(size: int, *paths: str) -> dict[str, int]:
    return {f"{path}.size(0)": size for path in paths}


KEYS = [f"ks[{number}]" for number in range(24)]
VALUES = [f"vs[{number}]" for number in range(24)]


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        pytest.param(
            [{"x.size(0)": a, "x.size(1)": b} for a, b in ((1, 16), (1, 32), (2, 64))],
            ["x.size(1)=16", "x.size(1)=32", "x.size(1)=64"],
            id="only-the-second-is-enough",
        ),
        pytest.param(
            [tied(size, *KEYS, *VALUES, "ids") for size in (1, 2)],
            ["ids.size(0)=1", "ids.size(0)=2"],
            id="what-has-no-index-comes-first",
        ),
        pytest.param(
            [tied(1, *KEYS[:2]) | tied(a, *KEYS[2:]) for a in (1, 2)],
            ["ks[2].size(0)=1", "ks[2].size(0)=2"],
            id="a-star-covers-nothing-of-another-size",
        ),
        pytest.param(
            [tied(size, "state['keys, a'].x", "state['b=]'].x") for size in (1, 2)],
            ["state[*].x.size(0)=1", "state[*].x.size(0)=2"],
            id="keys-of-dicts",
        ),
    ],
)
def test_a_gear_is_named_by_what_tells_it_apart(rows: list[dict[str, int]], names: list[str]) -> None:
    given_texts = texts(*rows)
    assert list(short_names(given_texts).values()) == names
    assert list(short_names(given_texts)) == given_texts


PATHS = st.sampled_from(
    ["ids", "mask", "ks[0]", "ks[1]", "vs[0]", "vs[1]", "d['a, b=1']", 'd["x]"]', "ks[*]", "a.b[0][1]"]
)
DIMS = st.lists(st.tuples(PATHS, st.integers(0, 2)), min_size=1, max_size=14, unique=True)


@st.composite
def gears(draw: st.DrawFn) -> list[str]:
    """Gears of some dims, several of which are often tied."""
    dims = draw(DIMS)
    columns = draw(st.lists(st.integers(0, 2), min_size=len(dims), max_size=len(dims)))
    rows = draw(st.lists(st.tuples(*[st.sampled_from([1, 2, 16])] * 3), min_size=1, max_size=8))
    spec = GearSpec(tuple(Axis(path, dim, (1,)) for path, dim in dims))
    return [gear_text(spec, tuple(row[column] for column in columns)) for row in rows]


@settings(max_examples=examples(100))
@given(st.lists(gears(), min_size=1, max_size=3), st.lists(st.text(max_size=30), max_size=3))
def test_names_are_distinct_and_never_longer(sets: list[list[str]], others: list[str]) -> None:
    full = list(dict.fromkeys([*itertools.chain(*sets), *others]))
    names = short_names(full)
    assert list(names) == full
    assert len(set(names.values())) == len(full)
    assert all(len(name) <= len(text) for text, name in names.items())
