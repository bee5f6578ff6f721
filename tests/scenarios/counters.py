"""Methods that count in attributes of their module; `numbers` has those on whose ints something depends."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.support.scenarios import Run


class Meter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls = 0
        self.rows = -1
        self.phase = 0

    def counting(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.linear(x)

    def sizes(self, x: Tensor) -> tuple[Tensor, int]:
        self.rows += 2 * x.size(0)
        self.phase = (self.phase + 1) % 3
        return self.linear(x), self.rows


def _compare(run: Run, method: str, calls: list[Tensor], **parameters: object) -> Meter:
    torch.manual_seed(0)
    ours, theirs = Meter(), Meter()
    theirs.load_state_dict(ours.state_dict())
    cached = run.cache(getattr(ours, method), **parameters)
    names = ("calls", "rows", "phase")
    for number, x in enumerate(calls):
        with torch.no_grad():
            expected = getattr(theirs, method)(x)
        run.check(f"{number}", cached(x), expected)
        found = [getattr(ours, name) for name in names]
        run.check(f"{number}: attributes", found, [getattr(theirs, name) for name in names])
        run.check(f"{number}: types", [type(value).__name__ for value in found], ["int"] * 3)
    run.cached = cached
    return ours


def one_variant_serves_every_value(run: Run) -> None:
    ours = _compare(run, "counting", [torch.randn(2, 4) for _ in range(4)], gears={"x": {0: [2]}})
    run.check("one variant", len(run.cached._binding.loaded.variants), 1)
    for value in (-5, 10**30, 1, 0):
        ours.calls = value
        run.cached(torch.randn(2, 4))
        run.check(f"from {value}", ours.calls, value + 1)
    run.check("still one variant", len(run.cached._binding.loaded.variants), 1)


def each_gear_adds_its_own_size(run: Run) -> None:
    _compare(run, "sizes", [torch.randn(size, 4) for size in (2, 4, 4, 1, 2)], gears={"x": {0: [1, 2, 4]}})
