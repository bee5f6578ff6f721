"""Small random modules: a list of steps that a method goes through, and the calls that are made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import same

WIDTH = 4
#: Steps on `x` of sizes (batch, length, 4); each keeps the sizes.
STEPS = (
    "linear",
    "scale",
    "relu",
    "norm",
    "softmax",
    "shift",
    "batch mean",
    "length sum",
    "roll",
    "concatenate",
    "flatten",
    "transpose",
    "add size",
    "positions",
    "mask",
    "add other",
    "other mean",
    "write other",
    "flag",
    "branch",
    "count",
)


class Program(nn.Module):
    """Goes through its steps; which ones is data that a trace bakes in."""

    def __init__(self, steps: list[tuple[str, float]]) -> None:
        super().__init__()
        self.steps = steps
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.calls = 0

    def run(self, x: Tensor, other: Tensor, flag: bool = False) -> tuple[Any, ...]:
        sizes = []
        for name, number in self.steps:
            x = self.step(x, other, flag, name, number)
            if name == "add size":
                sizes.append(x.size(0) * 2 + x.size(1))
        return x, x[:1], sizes

    def step(self, x: Tensor, other: Tensor, flag: bool, name: str, number: float) -> Tensor:
        batch, length = x.size(0), x.size(1)
        if name == "linear":
            return self.linear(x)
        if name == "scale":
            return x * number
        if name == "relu":
            return torch.relu(x) - number
        if name == "norm":
            return self.norm(x)
        if name == "softmax":
            return torch.softmax(x, 1 if number > 0 else -1)
        if name == "shift":
            return x - x.mean(-1, keepdim=True)
        if name == "batch mean":
            return x + x.mean(0, keepdim=True)
        if name == "length sum":
            return x / (1 + x.sum(1, keepdim=True).abs())
        if name == "roll":
            return torch.roll(x, 1, 0) + x.flip(1)
        if name == "concatenate":
            return torch.cat([x, x * number], 1)[:, length:]
        if name == "flatten":
            return x.reshape(batch * length, WIDTH).cumsum(0).view(batch, length, WIDTH)
        if name == "transpose":
            return (x.transpose(0, 1) * number).transpose(0, 1).contiguous()
        if name == "add size":
            return x + batch * 10 + length
        if name == "positions":
            return x + torch.arange(length).unsqueeze(-1) * number
        if name == "mask":
            return x.masked_fill(torch.ones(length, WIDTH).tril() == 0, number)
        if name == "add other":
            return x + other
        if name == "other mean":
            return x * other.mean()
        if name == "write other":
            other.add_(x.detach().mean())
            return x + other
        if name == "flag":
            return x * number if flag else x + number
        if name == "branch":
            return x * 2 if batch > 2 else x * 3
        self.calls += 1
        return x * self.calls


def run_example(example: dict[str, Any], root: Path, *, backend: str = "eager", tolerance: float = 0.0) -> list[str]:
    """Make the calls of an example; return what differs from eager, and what was traced."""
    torch.manual_seed(example["seed"])
    steps = [(name, number) for name, number in example["steps"]]
    ours, theirs = Program(steps).eval(), Program(steps).eval()
    theirs.load_state_dict(ours.state_dict())
    config = gearcache.CompilerConfig(backend=backend, strict=True, on_miss="compile", max_variants=64)
    config.inference_config.dynamic_gears_merge_policy = example["policy"]
    gears = {name: {int(dim): sizes for dim, sizes in dims.items()} for name, dims in example["gears"].items()} or None
    cached = gearcache.cache_compile(ours.run, config=config, dynamic=example["dynamic"], gears=gears, cache_dir=root)
    wrong = []
    for number, (batch, length, flag) in enumerate(example["calls"]):
        x, other = torch.randn(batch, length, WIDTH), torch.randn(batch, length, WIDTH)
        their_other = other.clone()
        with torch.no_grad():
            expected = theirs.run(x.clone(), their_other, flag)
        found = cached(x, other, flag)
        if not same((found, other, ours.calls), (expected, their_other, theirs.calls), tolerance):
            wrong.append(f"call {number}: {found} is not {expected}")
    return [*wrong, f"traced: {cached.stats.miss_reasons}"] if cached.stats.traces else wrong


def run_examples(order: dict[str, Any]) -> list[list[str]]:
    """Run examples, each with a cache of its own."""
    return [
        run_example(example, Path(order["root"]) / str(number), backend=order["backend"], tolerance=order["tolerance"])
        for number, example in enumerate(order["examples"])
    ]
