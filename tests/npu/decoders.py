"""Decode steps as served on NPUs: RMSNorm, RoPE, GQA, KV scatter, SwiGLU (Llama)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Size:
    """Sizes of a tiny decoder."""

    vocabulary: int = 64
    hidden: int = 32
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 48
    layers: int = 2
    length: int = 16

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads


class RmsNorm(nn.Module):
    """Root mean square norm, in float32 as all models have it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of `[batch, heads, 1, head]`."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class Attention(nn.Module):
    """Grouped-query attention of one new token over a static KV cache that it writes."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.q = nn.Linear(size.hidden, size.hidden)
        self.k = nn.Linear(size.hidden, size.kv_heads * size.head)
        self.v = nn.Linear(size.hidden, size.kv_heads * size.head)
        self.out = nn.Linear(size.hidden, size.hidden, bias=False)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, position: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        size, batch = self.size, x.shape[0]
        query = rotate(self.q(x).view(batch, 1, size.heads, size.head).transpose(1, 2), cos, sin)
        key = rotate(self.k(x).view(batch, 1, size.kv_heads, size.head).transpose(1, 2), cos, sin)
        value = self.v(x).view(batch, 1, size.kv_heads, size.head).transpose(1, 2)
        where = position.view(batch, 1, 1, 1).expand(batch, size.kv_heads, 1, size.head)
        keys.scatter_(2, where, key)
        values.scatter_(2, where, value)
        groups = size.heads // size.kv_heads
        mask = torch.arange(size.length, device=x.device)[None, None, None, :] <= position.view(batch, 1, 1, 1)
        scores = query @ keys.repeat_interleave(groups, 1).transpose(2, 3) * size.head**-0.5
        scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, -1, dtype=torch.float32).to(x.dtype)
        mixed = weights @ values.repeat_interleave(groups, 1)
        return self.out(mixed.transpose(1, 2).reshape(batch, 1, size.hidden))


class SwiGlu(nn.Module):
    """The feed-forward network of Llama."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, intermediate, bias=False)
        self.up = nn.Linear(hidden, intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """One decoder layer."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.before, self.after = RmsNorm(size.hidden), RmsNorm(size.hidden)
        self.attention = Attention(size)
        self.mlp = SwiGlu(size.hidden, size.intermediate)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, position: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.before(x), keys, values, position, cos, sin)
        return x + self.mlp(self.after(x))


class Decoder(nn.Module):
    """A decoder whose KV caches the caller holds: `caches[layer] = (keys, values)`."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.embed = nn.Embedding(size.vocabulary, size.hidden)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.norm = RmsNorm(size.hidden)
        self.head = nn.Linear(size.hidden, size.vocabulary, bias=False)
        self.register_buffer("frequencies", 1.0 / 10000 ** (torch.arange(0, size.head, 2).float() / size.head))

    def decode(self, ids: Tensor, position: Tensor, caches: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Logits of the next token for `ids` of `[batch, 1]` at `position` of `[batch]`."""
        x = self.embed(ids)
        angles = position[:, None].float() * self.frequencies[None, :]
        angles = torch.cat((angles, angles), -1)[:, None, None, :]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer, (keys, values) in zip(self.layers, caches, strict=True):
            x = layer(x, keys, values, position, cos, sin)
        return self.head(self.norm(x))

    def caches(self, batch: int, device: str, dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
        """Empty KV caches."""
        shape = (batch, self.size.kv_heads, self.size.length, self.size.head)
        return [
            (torch.zeros(shape, dtype=dtype, device=device), torch.zeros(shape, dtype=dtype, device=device))
            for _ in range(self.size.layers)
        ]
