"""Two methods that are compiled for real: three graphs in all."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from tests.scenarios import Run


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("count", torch.zeros(8))

    def decode(self, x: Tensor, keys: list[Tensor]) -> tuple[Tensor, Tensor, int]:
        out = torch.relu(self.linear(x))
        for key in keys:
            key.add_(out)
        self.count.add_(1)
        return out.softmax(-1), x.view(-1), x.size(0)

    def pool(self, x: Tensor) -> Tensor:
        return self.linear(x).mean(0)


def gears(run: Run) -> None:
    ours = Net()
    theirs = copy.deepcopy(ours)
    cached = run.cache(ours.decode, gears={"x": {0: [2, 4]}})
    for number, size in enumerate((2, 4, 2)):
        if number == 2:
            with torch.no_grad():
                ours.linear.weight.mul_(2)
                theirs.linear.weight.mul_(2)
        keys = [torch.randn(size, 8)]
        run.compare(f"{number}", cached, theirs.decode, torch.randn(size, 8), keys)
        run.check(f"{number}, buffer", ours.count, theirs.count)


def dynamic(run: Run) -> None:
    net = Net()
    cached = run.cache(net.pool)
    for size in (3, 5, 9):
        run.compare(f"{size}", cached, net.pool, torch.randn(size, 8))
