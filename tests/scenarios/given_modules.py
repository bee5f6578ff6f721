"""Methods that are given modules: alone, in containers, as defaults, also those that they hold themselves."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.scenarios import Run


class Child(nn.Module):
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mean", torch.randn(4))
        self.rates = {"a": 1.0}
        self.plain = torch.randn(4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.relu(self.linear(x)) + self.mean + self.rates["a"] + self.plain
        return y * 2 if self.training else y


class Other(Child):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.child, self.weight = Child(), nn.Parameter(torch.randn(4))

    def one(self, x: Tensor, module: Any) -> Any:
        return module(x) * self.weight

    def two(self, x: Tensor, first: Any, second: Any) -> Any:
        return first(x) + second(x) * 2

    def listed(self, x: Tensor, modules: Any) -> Any:
        for module in modules:
            x = module(x)
        return x

    def starred(self, x: Tensor, *modules: Any, **named: Any) -> Any:
        return modules[0](x) + named["last"](x) * 2

    def beside_its_own(self, x: Tensor, module: Any) -> Any:
        return self.child(x) * 3 + module(x)

    def parts(self, x: Tensor, module: Any) -> Any:
        return x @ module.linear.weight + sum(parameter.sum() for parameter in module.parameters())

    def written(self, x: Tensor, module: Any) -> Any:
        y = module(x)
        module.mean = y.mean(0)
        return y


def _compared(run: Run, name: str, calls: list[tuple[Any, ...]], net: Net, **named: Any) -> None:
    cached = run.cache(getattr(net, name), dynamic=False)
    for number, given in enumerate(calls):
        x = torch.arange(8.0).reshape(2, 4) + number
        theirs, arguments, keywords = copy.deepcopy((net, given, named))
        with torch.no_grad():
            expected = getattr(theirs, name)(x, *arguments, **keywords)
        run.check(f"{name} {number}", cached(x, *given, **named), expected)


def modules_alone(run: Run) -> None:
    net, first, second, eager, rated = Net(), Child(), Child(), Child().eval(), Child()
    rated.rates = {"a": 5.0}
    _compared(run, "one", [(module,) for module in (first, second, Other(), eager, rated, first)], net)
    _compared(run, "parts", [(first,), (second,)], net)
    _compared(run, "written", [(first,), (second,), (first,)], net)


def a_module_with_a_hook(run: Run) -> None:
    net, plain, hooked = Net(), Child(), Child()
    hooked.register_forward_hook(_tripled)
    _compared(run, "one", [(plain,), (hooked,), (plain,)], net)


def _tripled(module: nn.Module, arguments: Any, result: Tensor) -> Tensor:
    return result * 3


def modules_in_containers(run: Run) -> None:
    net, first, second = Net(), Child(), Child()
    _compared(run, "two", [(first, second), (second, first), (first, first)], net)
    _compared(run, "listed", [([first, second],), ([second],)], net)
    _compared(run, "starred", [(first,), (second,)], net, last=first)


def modules_that_it_holds(run: Run) -> None:
    net, first, second = Net(), Child(), Child()
    given = [(first,), (second,), (net.child,), (first,)]
    _compared(run, "beside_its_own", given, net)
