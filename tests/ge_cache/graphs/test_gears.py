"""Gears: one trace, one graph each, in the process that compiled and in a relaunched one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gearcache
from gearcache.errors import GearSpecError, UnknownGear
from tests.scenarios.geared import Net
from tests.support.scenarios import strict_config


def test_a_shape_outside_all_gears_is_refused_by_default(cache_dir: Path) -> None:
    net = Net()
    cached = gearcache.cache_compile(net.encode, config=strict_config(), gears={"x": {0: [2, 4]}})
    for _ in range(2):
        with pytest.raises(UnknownGear, match=r"`Net\.encode`.*x\.size\(0\)=3.*x\.size\(0\)=2; x\.size\(0\)=4"):
            cached(torch.randn(3, 4))
        cached(torch.randn(2, 4))
    assert cached.stats.compiles == 2
    cached(torch.randn(4, 4))
    assert cached.stats.gears == {"x.size(0)=2": 2, "x.size(0)=4": 1}
    assert cached.stats.calls == 3


def test_a_shape_outside_all_gears_runs_eagerly_when_asked(cache_dir: Path) -> None:
    net = Net()
    config = strict_config(on_miss="eager")
    cached = gearcache.cache_compile(net.encode, config=config, gears={"x": {0: [2, 4]}})
    for size in (2, 3, 4, 3):
        x = torch.randn(size, 4)
        found, expected = cached(x), net.encode(x)
        assert torch.equal(found[0], expected[0])
        assert found[1] == expected[1]
        assert not found[0].requires_grad
    assert cached.stats.compiles == 2
    assert cached.stats.calls == 4


@pytest.mark.parametrize(
    ("gears", "message"),
    [
        pytest.param(
            {"nothing": {0: [2, 4]}}, "`nothing`, which is no parameter of `.*encode`; it has ", id="unknown argument"
        ),
        pytest.param({"x": {5: [2, 4]}}, "dim 5 of `x`, of 2 dims", id="unknown dim"),
        pytest.param({"x[*]": {0: [2, 4]}}, "no tensor that the method computes with", id="path without a match"),
    ],
)
def test_a_spec_that_does_not_fit_the_method_is_refused_at_the_call(
    cache_dir: Path, gears: dict[str, dict[int, list[int]]], message: str
) -> None:
    cached = gearcache.cache_compile(Net().encode, config=strict_config(), gears=gears)
    with pytest.raises(GearSpecError, match=message):
        cached(torch.randn(4, 4))


def test_zipped_gears_that_the_trace_ties_together_are_refused(cache_dir: Path) -> None:
    class Adder(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

    gears = {"x": {0: [2, 4]}, "y": {0: [2, 3]}}
    cached = gearcache.cache_compile(Adder().forward, config=strict_config(), gears=gears)
    with pytest.raises(GearSpecError, match="equal in every call"):
        cached(torch.randn(2, 4), torch.randn(2, 4))


def test_a_gear_for_which_the_method_raises_raises_that_and_the_others_are_kept(cache_dir: Path) -> None:
    net = Net()
    cached = gearcache.cache_compile(net.encode, config=strict_config(), gears={"x": {1: [4, 8]}})
    x = torch.randn(4, 4)
    assert torch.equal(cached(x)[0], net.encode(x)[0])
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        cached(torch.randn(4, 8))
    assert torch.equal(cached(x)[0], net.encode(x)[0])
