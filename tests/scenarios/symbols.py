"""Methods whose gear specs are written with symbols."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gearcache import Symbol
from tests.support.scenarios import Run, traced


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def masked(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.linear(x) * mask.sum(1, keepdim=True)

    def scaled(self, x: Tensor) -> Tensor:
        return self.linear(x) + x.size(0)

    def added(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def doubled(self, x: Tensor) -> Tensor:
        return x + x

    def sized(self, x: Tensor) -> Tensor:
        if x.size(0) == 10:
            return x * 10
        if x.size(0) <= 30:
            return x * 200
        return x * x.size(0)


@traced(1)
def one_symbol_on_two_inputs_makes_one_list_of_gears(run: Run) -> None:
    net = Net()
    b = Symbol("b", gears=[2, 4])
    cached = run.cache(net.masked, gears={"x": {0: b}, "mask": {0: b, 1: 10 * b}})
    for size in (4, 2, 4):
        x, mask = torch.randn(size, 4), torch.randn(size, 10 * size)
        run.compare(f"{size}, {len(run.checks)}", cached, net.masked, x, mask)
    run.check("two gears", len(cached.stats.gears), 2)


@traced(1)
def a_range_without_gears_is_one_dynamic_graph(run: Run) -> None:
    net = Net()
    cached = run.cache(net.scaled, gears={"x": {0: Symbol("n", min=2, max=64, divisor=2)}})
    for size in (6, 2, 64):
        run.compare(f"{size}", cached, net.scaled, torch.randn(size, 4))
    run.check("one graph", cached.stats.loads, 1)


@traced(2)
def size_one_of_a_range_is_a_graph_of_its_own(run: Run) -> None:
    net = Net()
    cached = run.cache(net.scaled, gears={"x": {0: Symbol(max=8)}})
    for size in (1, 5, 8, 1):
        run.compare(f"{size}, {len(run.checks)}", cached, net.scaled, torch.randn(size, 4))
    run.check("two graphs", cached.stats.loads, 2)


@traced(3)
def gears_beside_a_range(run: Run) -> None:
    net = Net()
    cached = run.cache(net.masked, gears={"x": {0: [2, 4]}, "mask": {1: Symbol("n", max=64)}})
    for batch, length in ((2, 5), (4, 7), (2, 9), (4, 33)):
        run.compare(f"{batch} {length}", cached, net.masked, torch.randn(batch, 4), torch.randn(batch, length))


@traced(3)
def three_specialisations_on_a_size(run: Run) -> None:
    net = Net()
    cached = run.cache(net.sized)
    for size in (10, 20, 30, 40, 50):
        run.compare(f"{size}", cached, net.sized, torch.randn(size))
    run.check("three variants", len(cached._binding.loaded.variants), 3)
