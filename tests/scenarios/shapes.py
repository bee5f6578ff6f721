"""Methods under PyTorch's own shape controls. Importing the marks imports Dynamo, so it is done at the top."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo import mark_dynamic, mark_static, maybe_mark_dynamic
from torch._dynamo.decorators import mark_unbacked

from tests.support.scenarios import Run, traced


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def scaled(self, x: Tensor) -> Tensor:
        return self.linear(x) * x.size(0)

    def pooled(self, x: Tensor) -> Tensor:
        return x.sum(1) + x.size(1)

    def specialised(self, x: Tensor) -> Tensor:
        return x * (2 if x.size(0) == 4 else 3)

    def added(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


def _called(run: Run, cached: Any, method: Any, sizes: tuple[int, ...], mark: Any = None, width: int = 4) -> None:
    for size in sizes:
        x = torch.randn(size, width)
        if mark is not None:
            mark(x)
        with torch.no_grad():
            run.check(f"size {size}, {len(run.checks)}", cached(x), method(x))


def _used(cached: Any) -> list[str]:
    return sorted(gear for gear, calls in cached.stats.gears.items() if calls)


@traced(2)
def marked_range(run: Run) -> None:
    net = Net()
    cached = run.cache(net.scaled, dynamic=False)
    _called(run, cached, net.scaled, (3, 8, 2), lambda x: mark_dynamic(x, 0, min=2, max=8))
    run.check("one graph", _used(cached), ["dynamic"])
    _called(run, cached, net.scaled, (9, 3))
    run.check("a graph outside of the range", _used(cached), ["dynamic", "x(9, 4)"])


@traced(2)
def maybe_marked_dim_that_the_method_fixes(run: Run) -> None:
    net = Net()
    cached = run.cache(net.specialised, dynamic=False)
    _called(run, cached, net.specialised, (4, 5, 6), lambda x: maybe_mark_dynamic(x, 0))
    run.check("a fixed and a dynamic graph", _used(cached), ["dynamic", "x(4, 4)"])


@traced(2)
def marked_static_dim(run: Run) -> None:
    net = Net()
    cached = run.cache(net.pooled)
    for width in (4, 6):
        _called(run, cached, net.pooled, (3, 5), lambda x: mark_static(x, 1), width)
    run.check("a graph per width", len(cached._binding.loaded.gear_texts()), 2)


@traced(1)
def marked_unbacked_dim(run: Run) -> None:
    net = Net()
    cached = run.cache(net.scaled, dynamic=False)
    _called(run, cached, net.scaled, (3, 1, 5, 0), lambda x: mark_unbacked(x, 0))
    run.check("one graph", _used(cached), ["dynamic"])


@traced(1)
def dims_named_by_the_settings(run: Run) -> None:
    net = Net()
    with torch.compiler.config.patch(dynamic_sources=r"L\['[xy]'\]:0"):
        cached = run.cache(net.added, dynamic=False)
        for size in (3, 5):
            run.compare(f"{size}", cached, net.added, torch.randn(size, 4), torch.randn(size, 4))
    run.check("one graph", _used(cached), ["dynamic"])


@traced(2)
def dims_that_change(run: Run) -> None:
    net = Net()
    cached = run.cache(net.scaled, dynamic=None)
    _called(run, cached, net.scaled, (3, 5, 7, 3))
    run.check("a static and a dynamic graph", _used(cached), ["dynamic", "x(3, 4)"])
    run.check("the first one serves its size", cached.stats.gears["x(3, 4)"], 2)


@traced(1)
def a_marked_tensor_within_gears(run: Run) -> None:
    net = Net()
    cached = run.cache(net.scaled, gears={"x": {0: [2, 4]}})
    _called(run, cached, net.scaled, (2, 4), lambda x: maybe_mark_dynamic(x, 0))
    run.check("two gears", len(cached.stats.gears), 2)
