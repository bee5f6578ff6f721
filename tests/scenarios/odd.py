"""Methods that cannot be cached, or only with care."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.support.scenarios import Run


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def plain(self, x: Tensor) -> Tensor:
        return self.linear(x)

    def two(self, x: Tensor, y: Tensor) -> Tensor:
        return x * 2 + y

    def write(self, x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        return x + y

    def item(self, x: Tensor) -> Tensor:
        return x + x.sum().item()

    def noisy(self, x: Tensor) -> Tensor:
        return x + torch.randn(x.size(0), 4)

    def factories(self, x: Tensor) -> Tensor:
        made = torch.arange(x.size(0)).unsqueeze(1) + torch.full((x.size(0), 1), 2.0)
        return torch.cat([x + made, torch.zeros(x.size(0), 2)], 1)

    def dropout(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5, training=True) + torch.rand_like(x)


def random_numbers_are_fresh(run: Run) -> None:
    net = Net()
    ways: tuple[tuple[Any, dict[str, Any]], ...] = ((net.noisy, {}), (net.noisy, {"gears": {"x": {0: [1, 3]}}}))
    for method, parameters in (*ways, (net.dropout, {})):
        cached = run.cache(method, **parameters)
        x = torch.ones(3, 4)
        cached(x)
        for seed in (1, 2):
            torch.manual_seed(seed)
            first, second = cached(x), cached(x)
            torch.manual_seed(seed)
            label = f"{method.__name__} {parameters} {seed}"
            run.check(label, (first, second), (method(x), method(x)))
            run.check(f"fresh {label}", torch.equal(first, second), False)


def scalar_of_a_tensor(run: Run) -> None:
    net = Net()
    cached = run.cache(net.item)
    for number in range(3):
        run.compare(f"{number}", cached, net.item, torch.randn(2, 4))


def factories(run: Run) -> None:
    net = Net()
    cached = run.cache(net.factories, gears={"x": {0: [1, 2, 4]}})
    for size in (4, 1, 2):
        run.compare(f"{size}", cached, net.factories, torch.randn(size, 4))
