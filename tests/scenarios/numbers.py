"""Methods with ints that they write and on which tensors and branches depend: few variants serve all values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.scenarios import Run

#: Values that a program may give an int: of both signs, about every bound below, and large.
_VALUES = (0, 2, 3, 7, 8, -1, -7, 2**40, -(2**40))


class State:
    """What a method is given with ints of its own."""

    def __init__(self) -> None:
        self.position = 0
        self.window = 3


class Machine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.position = 0
        self.window = 3
        self.state = State()

    def branches(self, x: Tensor) -> Tensor:
        self.position += 1
        if self.position < 0:
            return x + 1
        return x * 2 if self.position > 7 else x - 1

    def arithmetic(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.position += 1
        return x * self.position + (3 * self.position - self.window), x + self.position // 3 - self.position % -4

    def positions(self, x: Tensor) -> Tensor:
        found = torch.arange(x.size(0)) + self.position
        self.position += x.size(0)
        return found

    def bounds(self, x: Tensor) -> Tensor:
        self.position += 1
        return x + max(self.position - self.window + 1, 0) + min(self.position, self.window)

    def returned(self, x: Tensor) -> tuple[Tensor, int, tuple[int, dict[str, int]]]:
        self.position += 2
        return x + 1, -self.position, (self.position, {"square": self.position * self.position})

    def swapped(self, x: Tensor) -> Tensor:
        self.position, self.window = self.window, self.position + 1
        return x * self.position - self.window

    def argument(self, x: Tensor, state: State) -> tuple[Tensor, int]:
        state.position += x.size(0)
        if state.position >= 2 * state.window:
            state.window += 1
        return x * state.position + torch.arange(4) * state.window, state.window


def _run(method: str, run: Run, values: Sequence[Any], most: int, **parameters: Any) -> Any:
    ours, theirs = Machine(), Machine()
    cached = run.cache(getattr(ours, method), **parameters)
    generator = torch.Generator().manual_seed(len(method))
    for number, value in enumerate([None, None, None, *values, None]):
        x = torch.randn(4, 4, generator=generator)
        if value is not None:
            ours.position = theirs.position = value
        with torch.no_grad():
            expected = getattr(theirs, method)(x)
        run.check(f"{number}", cached(x), expected)
        found = [[each.position, each.window] for each in (ours, theirs)]
        run.check(f"{number}: ints", *found)
    count = len(cached._binding.loaded.variants)
    run.check("few variants", count <= most, True)
    run.cached = cached
    return ours


def a_branch(run: Run) -> None:
    _run("branches", run, _VALUES, 3)


def arithmetic(run: Run) -> None:
    _run("arithmetic", run, _VALUES, 1)


def gears(run: Run) -> None:
    _run("positions", run, _VALUES, 2, gears={"x": {0: [1, 2, 4]}})


def least_and_greatest(run: Run) -> None:
    _run("bounds", run, _VALUES, 4)


def results_and_containers(run: Run) -> None:
    _run("returned", run, _VALUES, 1)


def two_ints(run: Run) -> None:
    _run("swapped", run, _VALUES, 1)


def other_types(run: Run) -> None:
    ours = _run("bounds", run, (True, 1.5), 16)
    run.check("a float", type(ours.position), float)


def an_int_in_an_argument(run: Run) -> None:
    ours, theirs = Machine(), Machine()
    cached = run.cache(ours.argument, dynamic=False)
    _compare_argument(cached, theirs.argument, run)
    run.check("few variants", len(cached._binding.loaded.variants) <= 2, True)


def _compare_argument(cached: Callable[..., Any], method: Callable[..., Any], run: Run) -> None:
    for first in (0, -9, 2**40, 3):
        state = State()
        state.position = first
        for number in range(4):
            x = torch.full((4, 4), float(number))
            run.compare(f"{first} {number}", cached, method, x, state)
