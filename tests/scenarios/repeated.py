"""Models of equal layers, compiled for real: each layer once, and run as often as there are layers."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from tests.support.scenarios import Run

LAYERS = 3
#: Layers that do less than some work are compiled as a whole.
WIDTH = 192


class Layer(nn.Module):
    """One layer with a static cache that it writes in place, a constant, and a weight that all layers share."""

    def __init__(self, shared: nn.Parameter) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.first = nn.Linear(WIDTH, 4 * WIDTH)
        self.second = nn.Linear(4 * WIDTH, WIDTH)
        self.shared = shared

    def forward(self, x: Tensor, cache: Tensor, position: Tensor, scale: Tensor) -> Tensor:
        cache.index_copy_(1, position, x)
        weights = torch.softmax(self.norm(x) @ cache.transpose(1, 2) * scale, -1)
        mixed = weights @ cache
        hidden = torch.nn.functional.gelu(self.first(mixed)) * torch.tensor(0.5) + self.shared
        return x + self.second(hidden) * hidden.mean()


class Stacks(nn.Module):
    """Two stacks of layers, as an encoder and a decoder: what the first one gives, all layers of the second take."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Parameter(torch.randn(4 * WIDTH))
        self.embedding = nn.Embedding(11, WIDTH)
        self.layers = nn.ModuleList(Layer(self.shared) for _ in range(LAYERS))
        self.crossing = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH) for _ in range(4 * LAYERS))
        self.head = nn.Linear(WIDTH, 11)

    def decode(self, ids: Tensor, caches: list[Tensor], position: Tensor) -> tuple[Tensor, ...]:
        x = self.embedding(ids)
        scale = torch.rsqrt(position + 2.0)
        # Copies of what a layer writes after that.
        kept = [each for cache in caches[:1] for each in (cache.clone(), cache + 0, cache.view(-1).clone())]
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache, position, scale) + kept[0][:, :1]
        y = torch.tanh(x)
        for number, layer in enumerate(self.crossing):
            z = layer(torch.cat([x, y], -1))
            y = torch.sin(z) if number % 2 else torch.cos(z) + y * 0.5
        return self.head(y), y, scale, *kept


def _caches(size: int) -> list[Tensor]:
    return [torch.randn(size, 4, WIDTH) for _ in range(LAYERS)]


def stacks(run: Run) -> None:
    ours = Stacks().eval()
    theirs = copy.deepcopy(ours)
    cached = run.cache(ours.decode, dynamic=False)
    for number in range(2):
        if number == 1:
            # Each layer has its own weights: exchanged and changed ones are seen.
            for net in (ours, theirs):
                with torch.no_grad():
                    net.layers[1].first.weight.mul_(2)
                    net.layers[2].second.bias.add_(1)
                    net.shared.add_(0.5)
        ids = torch.arange(2).reshape(2, 1)
        run.compare(f"{number}", cached, theirs.decode, ids, _caches(2), torch.tensor([number]))
