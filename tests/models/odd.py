"""Methods that cannot be cached, or only with care."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.scenarios import Run


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

    def graph_break(self, x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return x + 1

    def prints(self, x: Tensor) -> Tensor:
        return x + x.sum().item()

    def data_dependent(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x - 1

    def no_operation(self, x: Tensor) -> int:
        return 1

    def noisy(self, x: Tensor) -> Tensor:
        return x + torch.randn(x.size(0), 4)

    def dropout(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5, training=True) + torch.rand_like(x)

    def backward(self, x: Tensor) -> Tensor:
        loss = self.linear(x).sum()
        loss.backward()
        return loss


def _random(run: Run, method: Callable[..., Any]) -> None:
    cached = run.cache(method)
    x = torch.ones(3, 4)
    cached(x)
    for seed in (1, 2):
        torch.manual_seed(seed)
        first, second = cached(x), cached(x)
        torch.manual_seed(seed)
        run.check(f"seed {seed}", (first, second), (method(x), method(x)))
        run.check(f"fresh {seed}", torch.equal(first, second), False)


def random_numbers_are_fresh(run: Run) -> None:
    _random(run, Net().noisy)


def dropout_is_fresh(run: Run) -> None:
    _random(run, Net().dropout)
