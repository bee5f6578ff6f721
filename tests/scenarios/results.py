"""Methods that give every kind of result and have side effects."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tests.support.scenarios import Run

SHIFT = torch.tensor([1.0, 2.0, 3.0, 4.0])


@dataclass
class Output:
    logits: Tensor
    count: int
    extra: Any = None


class Pair(NamedTuple):
    first: Tensor
    second: Any = None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("table", torch.arange(8.0))
        self.count = 0
        self.last: Any = None
        self.layers = [torch.zeros(2, 4), torch.zeros(2, 4)]

    def one(self, x: Tensor) -> Tensor:
        return self.linear(x)

    def many(self, x: Tensor) -> Any:
        y = self.linear(x)
        return (y, None, x.size(0), [y + 1, {"n": x.shape[0] * 2, "t": y * 2}], "text", 2.5, True)

    def in_dataclass(self, x: Tensor) -> Output:
        return Output(self.linear(x), x.size(0) + 1, [x * 2])

    def named(self, x: Tensor) -> Any:
        y = self.linear(x)
        return Pair(y.max(dim=1), Pair(torch.sort(y, dim=1), {"top": torch.topk(y, 2), "median": y.median(dim=0)}))

    def nothing(self, x: Tensor) -> None:
        self.table.add_(x.sum())

    def aliases(self, x: Tensor) -> Any:
        y = self.linear(x)
        return x, x.view(-1), x[1:], y, y[0], self.linear.weight, self.linear.weight.t(), self.table, self.table[2:]

    def attributes(self, x: Tensor) -> Tensor:
        self.count += 1
        self.last = self.linear(x)
        return self.last * self.count

    def buffer(self, x: Tensor) -> Tensor:
        self.table.mul_(0.5)
        self.table[:4].add_(x[0])
        return self.table[:4] + x

    def listed(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            layer.add_(x)
        return self.layers[0] + self.layers[1]

    def reads_shift(self, x: Tensor) -> Tensor:
        return x + SHIFT


def structures(run: Run) -> None:
    net = Net()
    for name in ("many", "in_dataclass", "named"):
        method = getattr(net, name)
        cached = run.cache(method)
        for size in (2, 3):
            run.compare(f"{name} {size}", cached, method, torch.randn(size, 4))


def output_that_is_or_views_something(run: Run) -> None:
    net = Net()
    cached = run.cache(net.aliases)
    x = torch.randn(3, 4)
    found = run.compare("values", cached, net.aliases, x)
    starts = {tensor.untyped_storage().data_ptr() for tensor in (found[0], found[1], found[2])}
    run.check("the input itself", (found[0] is x, starts == {x.untyped_storage().data_ptr()}), (True, True))
    run.check("offset of a view", found[2].data_ptr() - x.data_ptr(), 16)
    run.check("views of each other", found[4].data_ptr(), found[3].data_ptr())
    run.check("the parameter itself", found[5] is net.linear.weight, True)
    run.check("a view of the parameter", found[6].data_ptr(), net.linear.weight.data_ptr())
    run.check("the buffer itself", found[7] is net.table, True)
    run.check("a view of the buffer", found[8].data_ptr() - net.table.data_ptr(), 8)
    found[1].zero_()
    run.check("a write through the view", x, torch.zeros(3, 4))


def _side_effects(run: Run, name: str) -> None:
    ours = Net()
    theirs = copy.deepcopy(ours)
    cached = run.cache(getattr(ours, name))
    for number in range(3):
        x = torch.randn(2, 4)
        with torch.no_grad():
            expected = getattr(theirs, name)(x)
        run.check(f"{name}, result {number}", cached(x), expected)
        for state in ("count", "last", "table", "layers"):
            run.check(f"{name}, {state} {number}", getattr(ours, state), getattr(theirs, state))


def side_effects(run: Run) -> None:
    for name in ("nothing", "attributes", "buffer"):
        _side_effects(run, name)


def list_on_self_is_written_and_may_be_replaced(run: Run) -> None:
    ours = Net()
    theirs = copy.deepcopy(ours)
    cached = run.cache(ours.listed)
    for number in range(4):
        if number == 2:
            ours.layers = [torch.ones(2, 4), torch.ones(2, 4)]
            theirs.layers = [torch.ones(2, 4), torch.ones(2, 4)]
        if number == 3:
            ours.layers[1] = torch.full((2, 4), 5.0)
            theirs.layers[1] = torch.full((2, 4), 5.0)
        x = torch.randn(2, 4)
        run.check(f"result {number}", cached(x), theirs.listed(x))
        run.check(f"layers {number}", ours.layers, theirs.layers)


def closures(run: Run) -> None:
    factor, shift = 2.0, torch.randn(4)

    class Closed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * factor + shift

    closed = Closed()
    cached = run.cache(closed.forward)
    run.compare("first", cached, closed.forward, torch.randn(2, 4))
    shift = torch.randn(4)
    run.compare("another tensor in the cell", cached, closed.forward, torch.randn(2, 4))


def global_tensors_are_read_live(run: Run) -> None:
    global SHIFT
    net = Net()
    cached = run.cache(net.reads_shift)
    before = SHIFT
    try:
        run.compare("first", cached, net.reads_shift, torch.randn(2, 4))
        SHIFT = torch.tensor([9.0, 8.0, 7.0, 6.0])
        run.compare("replaced", cached, net.reads_shift, torch.randn(2, 4))
        SHIFT.zero_()
        run.compare("written", cached, net.reads_shift, torch.randn(2, 4))
    finally:
        SHIFT = before
