"""Methods with gears."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import Run, traced


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def encode(self, x: Tensor) -> tuple[Tensor, int]:
        return self.linear(x) + x.size(0), x.size(0) * 2

    def layers(self, x: Tensor, cache: SimpleNamespace) -> Tensor:
        out = self.linear(x)
        for layer in cache.layers:
            out = out + layer.keys.sum(0) - layer.values.mean(0)
        return out

    def strided(self, x: Tensor) -> Tensor:
        return self.linear(torch.cat([x, x * -0.5], 1)[:, x.size(1) :])

    @gearcache.cache_compile(config=gearcache.CompilerConfig(backend="eager", strict=True), gears={"x": {0: [2, 4]}})
    def decorated(self, x: Tensor) -> Tensor:
        return self.linear(x) * 2


def _tensors(size: int) -> Tensor:
    return torch.randn(size, 4)


@traced(1)
def gears_of_at_least_two(run: Run) -> None:
    net = Net()
    cached = run.cache(net.encode, gears={"x": {0: [2, 4, 8]}})
    for size in (4, 2, 8, 4):
        run.compare(f"{size}, {len(run.checks)}", cached, net.encode, _tensors(size))


def first_call_at_one(run: Run) -> None:
    net = Net()
    cached = run.cache(net.encode, gears={"x": {0: [1, 2, 4]}})
    run.compare("1", cached, net.encode, _tensors(1))
    run.check("all gears are loaded", cached.stats.loads, 3)
    for size in (2, 4, 1):
        run.compare(f"{size} later", cached, net.encode, _tensors(size))


@traced(1)
def marked_tensors(run: Run) -> None:
    net = Net()
    cached = run.cache(net.encode)
    for size in (2, 4, 2):
        x = _tensors(size)
        gearcache.set_dim_gears(x, {0: [2, 4]})
        run.compare(f"{size}, {len(run.checks)}", cached, net.encode, x)
    run.check("two gears", len(cached.stats.gears), 2)


def path_into_layers_of_a_cache(run: Run) -> None:
    net = Net()
    gears = {"cache.layers[*].keys": {0: [2, 3]}, "cache.layers[*].values": {0: [4, 6]}}
    cached = run.cache(net.layers, gears=gears)
    for size in (2, 3):
        layers = [SimpleNamespace(keys=_tensors(size), values=_tensors(2 * size)) for _ in range(2)]
        run.compare(f"{size}", cached, net.layers, torch.randn(2, 4), SimpleNamespace(layers=layers))


@traced(1)
def decorated_method(run: Run) -> None:
    net = Net()
    run.watch(net.decorated)
    for size in (2, 4):
        x = _tensors(size)
        run.check(f"{size}", net.decorated(x), net.linear(x).detach() * 2)


def a_strided_input_of_a_linear_layer(run: Run) -> None:
    """`aten::linear` then depends on whether the weight requires grad."""
    net = Net()
    cached = run.cache(net.strided, gears={"x": {0: [1, 2]}})
    for size in (1, 2):
        run.compare(f"{size}", cached, net.strided, torch.randn(size, 1, 4))
