"""Methods whose arguments are declared before the first call: by `set_inputs` and by `input_signature=`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import gearcache
from gearcache import Symbol, TensorSpec
from tests.support.scenarios import Run, strict_config, traced


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)

    def doubled(self, x: Tensor) -> Tensor:
        return x + x

    def of_dtype(self, x: Tensor) -> Tensor:
        return x * 2 if x.dtype == torch.float64 else x

    def pooled(self, ids: Tensor, mask: Tensor, scale: int = 1, unused: Tensor | None = None) -> Tensor:
        return (self.embedding(ids) * mask.unsqueeze(-1)).sum(1) * scale

    def cached_step(self, x: Tensor, cache: list[tuple[Tensor, Tensor]], names: dict[str, Tensor]) -> Tensor:
        return x + sum(key.sum(1) + value.sum(1) for key, value in cache) + names["bias"]


@traced(1)
def the_example_of_the_seed(run: Run) -> None:
    net = Net()
    cached = run.cache(net.doubled)
    width, height = Symbol(), Symbol()
    cached.set_inputs(TensorSpec((width, height), torch.float32))
    cached.warm()
    for shape in ((2, 3), (4, 5)):
        run.compare(f"{shape}", cached, net.doubled, torch.randn(shape))
    run.check("one graph", cached.stats.loads, 1)


@traced(1)
def lists_and_dicts_of_specs(run: Run) -> None:
    net = Net()
    batch = Symbol("batch", gears=[2, 3])
    part = TensorSpec((batch, 5, 4), torch.float32)
    signature = (TensorSpec((batch, 4), torch.float32), [(part, part), (part, part)], {"bias": torch.zeros(4)})
    cached = run.cache(net.cached_step, input_signature=signature)
    cached.warm()
    for rows in (3, 2):
        cache = [(torch.randn(rows, 5, 4), torch.randn(rows, 5, 4)) for _ in range(2)]
        run.compare(f"{rows}", cached, net.cached_step, torch.randn(rows, 4), cache, {"bias": torch.randn(4)})
    run.check("both gears", len(cached.stats.gears), 2)


@traced(3)
def padding_to_gears_of_a_signature(run: Run) -> None:
    net = Net()
    batch = Symbol("batch", gears=[2, 4])
    signature = {"ids": TensorSpec((batch, 7), torch.int64), "mask": TensorSpec((batch, 7), torch.float32)}
    config = strict_config(run.backend, on_miss="pad", pad_values={"ids": 0, "mask": 0})
    cached = run.watch(gearcache.cache_compile(net.pooled, config=config, input_signature=signature))
    cached.warm()
    for rows in (3, 1, 4):
        run.compare(f"{rows}", cached, net.pooled, torch.ones(rows, 7, dtype=torch.int64), torch.rand(rows, 7))
    run.check("no call compiled more", cached.stats.loads, 2)
