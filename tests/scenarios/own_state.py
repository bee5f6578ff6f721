"""Modules whose method writes to what it reads: buffers, parameters, children, numbers, lists. Called several times."""

from __future__ import annotations

import collections
import copy
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.scenarios import Run, traced

TABLE = {"level": 1.0}


class Child(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(4))
        self.weight = nn.Parameter(torch.full((4,), 3.0))
        self.calls, self.factor = 0, 2.0

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.mean


class Held:
    __slots__ = ("child", "scale")

    def __init__(self) -> None:
        self.child = Child()
        self.scale = 2.0


class Net(nn.Module):
    ema: Tensor
    other: Tensor
    third: Tensor
    kv: Any
    child: Any

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ema", torch.zeros(4))
        self.register_buffer("other", torch.arange(4.0))
        self.register_buffer("third", torch.full((4,), 5.0))
        self.register_buffer("kv", torch.zeros(1, 4))
        self.weight = nn.Parameter(torch.full((4,), 2.0))
        self.child, self.spare = Child(), Child()
        self.spare.weight = nn.Parameter(torch.full((4,), 7.0))
        self.many = nn.ModuleList([Child(), self.spare])
        self.named = nn.ModuleDict({"a": Child()})
        self.listed = nn.ParameterList([nn.Parameter(torch.ones(4)), nn.Parameter(torch.full((4,), 2.0))])
        self.pair: list[Any] = [Child(), 1.0]
        self.two: tuple[float, Any] = (1.0, Child())
        self.held = Held()
        self.linear = nn.Linear(4, 4)
        self.history, self.queue = [1.0], collections.deque([1.0, 2.0])
        self.table: dict[str, Any] = {"a": torch.ones(4)}
        self.last: Tensor | None = None
        self.plain = torch.ones(4)

    # buffers

    def average(self, x: Tensor) -> Tensor:
        self.ema = self.ema * 0.5 + x.mean(0)
        self.other.add_(1)
        y = self.linear(x) + self.ema + self.other
        self.other = y.mean(0)
        return y

    def swap(self, x: Tensor) -> Tensor:
        self.ema, self.other = self.other, self.ema
        return x * self.ema + self.other

    # what comes and goes, or changes its kind

    def to_none(self, x: Tensor) -> Tensor:
        y = x if self.kv is None else x + self.kv
        self.kv = None if self.kv is not None else x[:1] * 2
        return y * 2

    def deleted(self, x: Tensor) -> Tensor:
        if hasattr(self, "third"):
            y = x + self.third
            del self.third
            return y
        return x - 1

    # children and parameters

    def of_children(self, x: Tensor) -> Tensor:
        y: Tensor = self.child(x) + self.spare(x) + self.held.child(x) * self.held.scale
        self.child.mean = y.mean(0)
        self.held.child.mean = y.mean(0) * 2
        self.held.scale = 3.0
        return y

    def through_another_name(self, x: Tensor) -> Tensor:
        y = x * self.held.child.mean + self.pair[1]  # type: ignore[operator]
        self.pair[0].mean = x.mean(0)
        return y

    def child_replaced(self, x: Tensor) -> Tensor:
        y: Tensor = self.child(x) + self.many[0](x) + self.named["a"](x) + self.two[1](x)
        self.add_module("child", self.spare)
        self.many[0] = self.named["a"] = self.spare
        self.two = (2.0, self.spare)
        return y

    def parameters_swapped(self, x: Tensor) -> Tensor:
        y: Tensor = x * self.child.weight + self.weight * self.listed[0]
        self.child.weight, self.weight = self.weight, self.child.weight
        self.listed[0] = self.listed[1]
        return y

    # everything else

    def numbers_and_containers(self, x: Tensor) -> Tensor:
        y = x * self.history[-1] + self.table["a"] + TABLE["level"] + self.queue[0] + len(self.table)
        y = y * self.child.factor
        self.child.factor = 2.5 if self.child.factor == 2.0 else 2.0
        self.child.calls += 1
        self.history[-1] = 3.0 - self.history[-1]
        self.table["a"], self.table["b"] = y.mean(0), x.sum()
        TABLE["level"] = 4.0
        self.queue.append(self.queue.popleft())
        return y

    def tensors(self, x: Tensor) -> Tensor:
        y = x + self.plain + (0 if self.last is None else self.last) + self.weight.data * self.ema.data
        self.plain, self.last = x.mean(0), y.sum()
        self.weight.data.mul_(2)
        return y

    # sizes that grow

    def grow(self, x: Tensor) -> Tensor:
        self.kv = torch.cat([self.kv, x[:1]])
        return self.kv.sum(0) + x


def _state(net: Net) -> list[Any]:
    kinds = {key: type(value).__name__ for key, value in (*net._parameters.items(), *net._buffers.items())}
    same = [net.ema is net.other, net.child is net.spare, net.many[0] is net.spare, net.two[1] is net.spare]
    plain = [net.history, net.queue, net.table, net.plain, net.last]
    numbers = [TABLE, net.held.scale]
    counted = None if net.child is None else (net.child.calls, net.child.factor)
    return copy.deepcopy([dict(net.state_dict()), kinds, same, list(map(list, plain[:2])), plain[2:], numbers, counted])


def _called(run: Run, name: str, sizes: tuple[int, ...] = (2, 2, 2), **parameters: Any) -> None:
    """Call a method several times, and compare results and all state with those of a copy that runs eagerly."""
    ours = Net()
    if name == "through_another_name":
        ours.pair[0] = ours.held.child
    theirs = copy.deepcopy(ours)
    cached = run.cache(getattr(ours, name), **parameters)
    seen: dict[bool, list[Any]] = {True: [], False: []}
    for is_ours in (False, True):
        TABLE["level"] = 1.0
        for number, size in enumerate(sizes):
            x = torch.arange(4.0 * size).reshape(size, 4) + number
            with torch.no_grad():
                result = cached(x) if is_ours else getattr(theirs, name)(x)
            seen[is_ours].append([result.detach().clone(), _state(ours if is_ours else theirs)])
    for number, (found, expected) in enumerate(zip(seen[True], seen[False], strict=True)):
        run.check(f"{name} {number} {parameters}", found, expected)


def buffers(run: Run) -> None:
    _called(run, "average", dynamic=False)


def buffers_that_change_their_kind(run: Run) -> None:
    for name in ("to_none", "deleted"):
        _called(run, name, dynamic=False)


def children_and_parameters(run: Run) -> None:
    for name in ("of_children", "through_another_name", "child_replaced", "parameters_swapped"):
        _called(run, name, dynamic=False)


def everything_else(run: Run) -> None:
    for name in ("numbers_and_containers", "tensors"):
        _called(run, name, dynamic=False)


def buffers_and_gears(run: Run) -> None:
    _called(run, "swap", (4, 2, 2, 4), gears={"x": {0: [2, 4]}})


@traced(3)
def a_growing_buffer(run: Run) -> None:
    _called(run, "grow", (2,) * 4, dynamic=True)
