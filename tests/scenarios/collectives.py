"""Models of a distributed job: collectives in their methods, groups of their own, and what no trace can take."""

from __future__ import annotations

import json

import torch
import torch.distributed as dist
from torch import Tensor, nn

import gearcache

CONFIG = gearcache.CompilerConfig(backend="eager", strict=True)


class Reduced(nn.Module):
    """Sums over all ranks, joins over another group of them, and knows its rank."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.group = dist.new_group()
        self.cached = gearcache.cache_compile(self.both, config=CONFIG, gears={"x": {0: [2, 4]}})

    def both(self, x: Tensor) -> Tensor:
        y = self.linear(x) + dist.get_rank()
        dist.all_reduce(y)
        parts = [torch.empty_like(y) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, y * x, group=self.group)
        return torch.cat(parts)


class Chosen(nn.Module):
    """Does what the backend of its group says."""

    def __init__(self) -> None:
        super().__init__()
        self.cached = gearcache.cache_compile(self.choose, config=CONFIG)

    def choose(self, x: Tensor) -> Tensor:
        return x + 1 if dist.get_backend() == "gloo" else x - 1


def build() -> None:
    """As a deployment does it: the group comes first, whoever made it."""
    dist.init_process_group("gloo")
    with torch.device("meta"):
        Reduced().cached.warm(torch.zeros(2, 8))


def build_chosen() -> None:
    with torch.device("meta"):
        Chosen().cached.warm(torch.zeros(2, 8))


def elsewhere() -> None:
    dist.init_process_group("gloo", rank=3, world_size=4)


def serve() -> None:
    """Print whether a rank of a real job hits and answers as the method itself."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Reduced()
    with torch.inference_mode():
        x = torch.full((4, 8), dist.get_rank() + 1.0)
        found, expected = model.cached(x), model.both(x)
    stats = model.cached.stats
    told = {"rank": dist.get_rank(), "equal": torch.equal(found, expected), "traces": stats.traces}
    print(json.dumps({**told, "compiles": stats.compiles, "hits": stats.hits}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    from tests.scenarios import collectives

    collectives.serve()
