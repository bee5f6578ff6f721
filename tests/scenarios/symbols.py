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


@traced(1)
def one_symbol_on_two_inputs_makes_one_list_of_gears(run: Run) -> None:
    net = Net()
    b = Symbol("b", gears=[2, 4])
    cached = run.cache(net.masked, gears={"x": {0: b}, "mask": {0: b, 1: 10 * b}})
    for size in (4, 2, 4):
        x, mask = torch.randn(size, 4), torch.randn(size, 10 * size)
        run.compare(f"{size}, {len(run.checks)}", cached, net.masked, x, mask)
    run.check("two gears", len(cached.stats.gears), 2)


@traced(3)
def gears_beside_a_range(run: Run) -> None:
    net = Net()
    cached = run.cache(net.masked, gears={"x": {0: [2, 4]}, "mask": {1: Symbol("n", max=64)}})
    for batch, length in ((2, 5), (4, 7), (2, 9), (4, 33)):
        run.compare(f"{batch} {length}", cached, net.masked, torch.randn(batch, 4), torch.randn(batch, length))
