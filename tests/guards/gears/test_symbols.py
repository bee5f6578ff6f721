"""`Symbol` in gear specs: what it forms, what it refuses, and that it is part of the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache import Symbol
from gearcache.errors import GearSpecError, UnknownGear
from gearcache.guards.gears.parse import parse_gears
from tests.scenarios.symbols import Net
from tests.support.scenarios import strict_config


def _gears(spec: dict[str, Any]) -> tuple[tuple[int, ...], ...]:
    return parse_gears(spec).gears


def test_a_symbol_has_one_value_wherever_it_stands() -> None:
    b = Symbol("b", gears=[2, 4])
    assert _gears({"x": {0: b}, "y": {0: b, 1: 10 * b, 2: (b + 1) // 2 - 1 + b % 3}}) == ((2, 2, 20, 2), (4, 4, 40, 2))


def test_two_symbols_of_one_name_are_one() -> None:
    def b(**options: Any) -> Symbol:
        return Symbol("b", **options)

    assert _gears({"x": {0: b(gears=[2, 4])}, "y": {0: b(gears=[2, 4]), 1: 10 * b(gears=[2, 4])}}) == (
        (2, 2, 20),
        (4, 4, 40),
    )
    one = b(gears=[2, 4])
    twice = parse_gears({"x": {0: one}, "y": {0: b(gears=[2, 4])}})
    assert twice.to_plain() == parse_gears({"x": {0: one}, "y": {0: one}}).to_plain()
    tied = parse_gears({"x": {0: b(max=8)}, "y": {0: b(max=8)}})
    problem = tied.range_problem({"x": torch.ones(2), "y": torch.ones(5)})
    assert problem == (
        "y",
        "outside the declared sizes: y.size(0) is 5",
        "the size of x.size(0) (both are `b`)",
    )


def test_names_and_order_do_not_change_the_key_and_everything_else_does() -> None:
    def plain(name: str, **options: Any) -> Any:
        b = Symbol(name, **{"gears": [2, 4]} | options)
        return parse_gears({"y": {1: 2 * b}, "x": {0: b}}).to_plain()

    b = Symbol(gears=[2, 4])
    assert plain("b") == plain("batch") == parse_gears({"x": {0: b}, "y": {1: 2 * b}}).to_plain()
    others = [
        plain("b", gears=[2, 6]),
        plain("b", gears=None, min=2),
        plain("b", gears=None, max=8),
        plain("b", gears=[3, 5], divisor=2, remainder=1),
        plain("b", unique=False),
        parse_gears({"x": {0: b}, "y": {1: 2 * Symbol(gears=[2, 4])}}).to_plain(),
        parse_gears({"x": (b, 4), "y": {1: 2 * b}}).to_plain(),
    ]
    texts = [repr(item) for item in [plain("b"), *others]]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min": 0}, "min is 0; it must be at least 1"),
        ({"divisor": 4, "remainder": 4}, "remainder is 4; allowed: 0 to 3"),
        ({"min": 5, "max": 4}, "max is 4, less than min=5"),
        ({"gears": [2, 3], "divisor": 2}, "gear 3 is not one of its sizes"),
    ],
)
def test_a_symbol_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(GearSpecError, match=message):
        Symbol("b", **options)


def test_expressions_that_make_no_size_are_refused() -> None:
    b, r = Symbol("b", gears=[2, 4]), Symbol("r")
    with pytest.raises(GearSpecError, match=r"`x.size\(1\)` is b - 3, which is -1 at b=2"):
        parse_gears({"x": {0: b, 1: b - 3}})
    with pytest.raises(GearSpecError, match="mixes symbols with and without gears"):
        parse_gears({"x": {0: b, 1: b * r}})
    with pytest.raises(GearSpecError, match="symbol `r` is the whole size of no dim"):
        parse_gears({"x": {0: 2 * r}})
    with pytest.raises(GearSpecError, match="divided by 0"):
        _ = b // 0
    with pytest.raises(TypeError):
        _ = b * 1.5  # type: ignore[operator]


def test_a_size_outside_the_range_is_refused_before_anything_runs(cache_dir: Path) -> None:
    spec = {"x": (Symbol("n", max=8, divisor=2), 4)}
    cached = gearcache.cache_compile(Net().scaled, config=strict_config(), gears=spec)
    refused = {
        (0, 4): r"x.size\(0\) is 0; allowed: 2 to 8",
        (1, 4): r"x.size\(0\) is 1; allowed: 2 to 8",
        (5, 4): r"is 5; allowed: 2 to 8, of the form 2 \* n",
        (10, 4): "is 10",
        (2, 5): r"x.size\(1\) is 5; allowed: 4",
    }
    for _ in range(2):
        for shape, message in refused.items():
            with pytest.raises(UnknownGear, match=message):
                cached(torch.randn(shape))
        cached(torch.randn(4, 4))
    assert cached.stats.traces == 1


def test_a_dynamic_graph_checks_what_symbols_tie_on_every_call(cache_dir: Path) -> None:
    """A loaded graph refuses what its trace would take."""
    n = Symbol("n", max=64)
    spec = {"x": {0: n}, "mask": {0: n, 1: 2 * n}}
    cached = gearcache.cache_compile(Net().masked, config=strict_config(), gears=spec)
    cached(torch.randn(3, 4), torch.randn(3, 6))
    with pytest.raises(UnknownGear, match=r"mask.size\(1\) is 9; allowed: 2 \* n, where n is x.size\(0\)"):
        cached(torch.randn(4, 4), torch.randn(4, 9))
    with pytest.raises(UnknownGear, match=r"the size of x.size\(0\) \(both are `n`\)"):
        cached(torch.randn(4, 4), torch.randn(5, 8))
    with pytest.raises(UnknownGear, match=r"x.size\(0\) is 65; allowed: 1 to 64"):
        cached(torch.randn(65, 4), torch.randn(65, 130))
