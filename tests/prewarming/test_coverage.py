"""A declared range is ready when stored graphs cover it: a trace may hold for a part of the sizes alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache import Symbol, TensorSpec
from tests.commands.checks.test_ready import checks
from tests.support.scenarios import strict_config

LEFT_OUT = "no graph of the entry takes these declared sizes"


class Branches(nn.Module):
    """Methods that treat some sizes in another way."""

    def __init__(self, method: str, *shape: Any) -> None:
        super().__init__()
        spec = TensorSpec(shape, torch.float32)
        self.cached = gearcache.cache_compile(getattr(self, method), config=strict_config(), input_signature=(spec,))

    def small(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 4 else x * 3

    def bounded(self, x: Tensor) -> Tensor:
        if x.shape[0] > 512:
            raise ValueError("at most 512 positions")
        return x + 1

    def compared(self, x: Tensor) -> Tensor:
        return x + 1 if x.shape[0] < x.shape[1] else x - 1


def build() -> Any:
    return Branches("small", Symbol("n", min=2, max=64), 4)


def test_the_part_of_a_range_that_a_branch_splits_off_is_not_ready_until_it_is_compiled_too(cache_dir: Any) -> None:
    build().cached.warm()
    report = gearcache.prewarm(build, dry_run=True)
    assert (report.entries[0].missing, report.is_complete) == (["x.size(0)=2 to 4"], False)
    ok, text = checks(f"{__name__}:build", code=1)["Branches.small"]
    assert (ok, "missing: x.size(0)=2 to 4; because: " + LEFT_OUT in text) == (False, True)
    report = gearcache.prewarm(build)
    assert list(report.entries[0].compiled) == ["x.size(0)=2 to 4"]
    assert report.is_complete
    assert checks(f"{__name__}:build", code=0)["Branches.small"][0] is True
    served = build().cached
    for size in (2, 4, 5, 64):
        assert torch.equal(served(torch.ones(size, 4)), torch.ones(size, 4) * (2 if size > 4 else 3))
    assert served.stats.compiles == 0


def test_sizes_that_a_method_refuses_are_stored_as_that(cache_dir: Any) -> None:
    cold = gearcache.prewarm(lambda: Branches("bounded", None, 4))
    again = gearcache.prewarm(lambda: Branches("bounded", None, 4), dry_run=True)
    for report in (cold, again):
        assert report.is_complete
        assert list(report.entries[0].impossible) == ["x.size(0)=513 to 65536"]


@pytest.mark.parametrize(
    ("method", "shape", "parts"),
    [
        ("small", (Symbol("n", max=64, divisor=8), 4), 0),
        ("compared", (Symbol("g", gears=[2, 8]), Symbol("b", min=2, max=64)), 2),
    ],
)
def test_what_one_graph_takes_is_one_graph(method: str, shape: Any, parts: int, cache_dir: Any) -> None:
    report = gearcache.prewarm(lambda: Branches(method, *shape))
    (entry,) = report.entries
    named = [name for name in entry.compiled if "to" in name or (name.count("size") > 1 and "=1" not in name)]
    assert (report.is_complete, len(named)) == (True, parts), entry
    assert gearcache.prewarm(lambda: Branches(method, *shape), dry_run=True).is_complete
