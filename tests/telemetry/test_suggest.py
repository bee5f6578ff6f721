"""`suggest_gears`: the best gears for the shapes that were met, and how shapes are counted."""

from __future__ import annotations

import itertools
import math
import random
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gearcache
from gearcache.errors import GearSpecError
from gearcache.guards.gears.parse import parse_gears
from gearcache.telemetry.suggest import suggest
from tests.scenarios.padded import Net
from tests.support.sampled import examples
from tests.support.scenarios import strict_config


@settings(max_examples=examples(40))
@given(
    st.dictionaries(st.tuples(st.integers(1, 6), st.integers(1, 6)), st.integers(1, 9), min_size=2, max_size=8),
    st.integers(1, 6),
)
def test_no_other_product_wastes_less(shapes: dict[tuple[int, int], int], k: int) -> None:
    found = suggest([("x", 0), ("x", 1)], shapes, k)
    assert math.prod(len(row) for row in found.sizes.values()) <= k
    if len(found.sizes) < 2:
        return
    columns = [sorted({shape[at] for shape in shapes}) for at in (0, 1)]
    lists = [
        [(*chosen, column[-1]) for n in range(len(column)) for chosen in itertools.combinations(column[:-1], n)]
        for column in columns
    ]

    def work(rows: tuple[tuple[int, ...], tuple[int, ...]]) -> int:
        def held(size: int, row: tuple[int, ...]) -> int:
            return min(gear for gear in row if gear >= size)

        return sum(calls * held(a, rows[0]) * held(b, rows[1]) for (a, b), calls in shapes.items())

    best = min(work(rows) for rows in itertools.product(*lists) if len(rows[0]) * len(rows[1]) <= k)
    assert found.work == best


def test_dims_that_follow_another_share_its_symbol() -> None:
    dims = [("ids", 0), ("mask", 0), ("mask", 1), ("y", 0)]
    found = suggest(dims, {(n, n, 10 * n, n + 1): 5 for n in range(1, 5)}, 1)
    assert found.sizes == {"ids.size(0)": [4]}
    texts = {path: {dim: repr(size) for dim, size in dims.items()} for path, dims in found.gears.items()}
    assert texts == {"ids": {0: "n0"}, "mask": {0: "n0", 1: "10 * n0"}, "y": {0: "n0 + 1"}}


def test_dims_keep_gears_and_open_ones_stay_open() -> None:
    dims = [("x", 0), ("x", 1), ("x", 2)]
    gears = [(2, 128, None), (4, 128, None)]
    found = suggest(dims, {(1, 100, 5): 3, (4, 90, 7): 2}, 2, gears=gears)
    assert found.sizes == {"x.size(0)": [1, 4], "x.size(1)": [128]}
    assert found.open_dims == ("x.size(2)",)
    assert found.definitions == [
        'n0 = Symbol("n0", gears=[1, 4])',
        'n1 = Symbol("n1", gears=[128])',
        'any2 = Symbol("any2")',
    ]
    pasted = eval(found.source, {"Symbol": gearcache.Symbol})  # noqa: S307 - what users paste
    assert pasted == found.gears
    spec = parse_gears(pasted)
    assert (spec.gears, [axis.dim for axis in spec.ranges]) == (((1, 128), (4, 128)), [2])


def test_a_search_ends_soon() -> None:
    dims, k = 12, 100
    draw = random.Random(0)
    shapes = {tuple(draw.randint(1, 1 << 40) for _ in range(dims)): draw.randint(1, 9) for _ in range(400)}
    begin = time.process_time()
    found = suggest([(f"x{index}", 0) for index in range(dims)], shapes, k)
    assert time.process_time() - begin < 60, "about 1 s here; it was hours"
    assert math.prod(len(row) for row in found.sizes.values()) <= k
    columns = [max(sizes) for sizes in zip(*shapes, strict=True)]
    assert [row[-1] for row in found.sizes.values()] == columns, "all that was met fits"


def test_what_is_suggested_can_be_used(cache_dir: Path) -> None:
    net = Net()
    config = strict_config(on_miss="pad", pad_values={"ids": 0, "mask": True})
    gears = {"ids": {0: [8]}, "mask": {0: [8]}}
    cached = gearcache.cache_compile(net.attention, config=config, gears=gears)
    calls = {1: 1, 3: 10, 5: 2, 8: 1}
    for size, count in calls.items():
        for _ in range(count):
            cached(torch.zeros(size, 5, dtype=torch.long), torch.ones(size, 5, dtype=torch.bool))
    assert cached.stats.shapes == {(size, size): count for size, count in calls.items()}
    found = cached.suggest_gears(2)
    assert found.sizes == {"ids.size(0)": [3, 8]}
    assert found.calls == 14
    assert found.today == "49.1% less work than with today's gears"
    assert str(found).endswith(found.today)
    assert cached.suggest_gears(1).today == "today's gears are as good"
    assert (found.least_work, found.work) == (1 + 30 + 10 + 8, 3 + 30 + 16 + 8)
    again = gearcache.cache_compile(net.attention, config=config, gears=found.gears)
    again.warm(torch.zeros(3, 5, dtype=torch.long), torch.ones(3, 5, dtype=torch.bool))
    assert len(again.stats.gears) == 2


def test_a_dynamic_graph_counts_shapes_when_asked(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Net().plain, config=strict_config(count_shapes=True))
    for size in (2, 3, 3, 7):
        cached(torch.randn(size, 4))
    assert cached.stats.shapes == {(2, 4): 1, (3, 4): 2, (7, 4): 1}
    assert cached.suggest_gears(2).gears == {"x": {0: [3, 7]}}


def test_of_any_number_of_shapes_the_first_are_counted(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearcache.guards.dispatch.graph_call.MOST_SHAPES", 2)
    cached = gearcache.cache_compile(Net().plain, config=strict_config(count_shapes=True))
    for size in (2, 3, 5, 7, 3):
        cached(torch.randn(size, 4))
    assert cached.stats.shapes == {(2, 4): 1, (3, 4): 2}


def test_of_any_number_of_padded_shapes_the_first_are_counted(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearcache.telemetry.gear_use.MOST_SHAPES", 2)
    config = strict_config(on_miss="pad", pad_values={"x": {0: 0}})
    cached = gearcache.cache_compile(Net().plain, config=config, gears={"x": {0: [8]}})
    for size in (2, 3, 5, 3):
        cached(torch.randn(size, 4))
    assert cached.stats.shapes == {(2,): 1, (3,): 2}
    cached.refresh()
    for size in (2, 7):
        cached(torch.randn(size, 4))
    assert len(cached.stats.shapes) == 2


def test_without_shapes_there_is_nothing_to_suggest(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Net().plain, config=strict_config())
    with pytest.raises(GearSpecError, match="no shapes were met yet"):
        cached.suggest_gears(2)
    cached(torch.randn(2, 4))
    with pytest.raises(GearSpecError, match="count_shapes=True"):
        cached.suggest_gears(2)


def test_k_is_a_number_of_gears() -> None:
    for k in (0, 101, True):
        with pytest.raises(GearSpecError, match="k is"):
            suggest([("x", 0)], {(2,): 1}, k)
