"""Methods that are compiled for real: with a gear and an operator that has no C interface, and one dynamic graph."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from tests.support.scenarios import Run

# Not `torch.library.custom_op`: what it defines imports Dynamo when it is called (torch 2.13 `_library/custom_ops.py`).
_LIBRARY = torch.library.Library("gearcache_tests", "DEF")
_LIBRARY.define("twice_and_count(Tensor x, Tensor(a!) calls, float shift) -> Tensor")


@torch.library.impl(_LIBRARY, "twice_and_count", "CPU")
def _twice_and_count(x: Tensor, calls: Tensor, shift: float) -> Tensor:
    """An operator of a user: it runs as Python, in the middle of compiled code."""
    calls.add_(1)
    return x * 2 + shift


@torch.library.register_fake("gearcache_tests::twice_and_count", lib=_LIBRARY)
def _fake_twice_and_count(x: Tensor, calls: Tensor, shift: float) -> Tensor:
    return torch.empty_like(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("count", torch.zeros(8))
        self.register_buffer("calls", torch.zeros(2, dtype=torch.int64))

    def decode(self, x: Tensor, keys: list[Tensor]) -> tuple[Tensor, Tensor, Tensor, int]:
        out = torch.relu(self.linear(x))
        for key in keys:
            key.add_(out)
        self.count.add_(1)
        twice = torch.ops.gearcache_tests.twice_and_count(out, self.calls, 0.5)
        again = torch.ops.gearcache_tests.twice_and_count(torch.relu(twice), self.calls, 1.5) + self.calls[0]
        return out.softmax(-1), again, x.view(-1), x.size(0)


def gears_and_operators_without_a_c_interface(run: Run) -> None:
    ours = Net()
    theirs = copy.deepcopy(ours)
    cached = run.cache(ours.decode, gears={"x": {0: [2]}})
    for number in range(3):
        if number == 2:
            with torch.no_grad():
                ours.linear.weight.mul_(2)
                theirs.linear.weight.mul_(2)
        run.compare(f"{number}", cached, theirs.decode, torch.randn(2, 8), [torch.randn(2, 8)])
        run.check(f"{number}, buffers", (ours.count, ours.calls), (theirs.count, theirs.calls))
        run.check(
            f"{number}, autograd is told of writes", torch.tensor(ours.count._version > number), torch.tensor(True)
        )


class Scaled(nn.Module):
    """Weights of one element, computed with before they meet the input."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([0.7]))
        self.shift = nn.Parameter(torch.tensor(0.3))
        self.matrix = nn.Parameter(torch.tensor([[1.5]]))
        self.register_buffer("one", torch.tensor(2, dtype=torch.int64))
        self.few = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        weight = self.scale.exp() * self.matrix.expand(1, 4)
        # Inductor fills tensors of one known value, of the input's sizes, before the graph has taken these.
        folded = torch.maximum(x * 0, torch.zeros_like(x)), (x * 0).sum() + torch.zeros_like(x)
        return x * weight + self.shift.cos() * self.one + torch.relu(self.few) + torch.tensor(0.25), *folded


def scalars(run: Run) -> None:
    ours = Scaled()
    theirs = copy.deepcopy(ours)
    cached = run.cache(ours.forward)
    run.compare("as made", cached, theirs.forward, torch.randn(3, 4))
    with torch.no_grad():
        for net in (ours, theirs):
            for weight in net.parameters():
                weight.mul_(2)
            net.one.add_(1)
    for size in (3, 5, 9):
        run.compare(f"{size}, after an update", cached, theirs.forward, torch.randn(size, 4))
