"""The model that the workers serve: a sentence encoder with one cached method. A deploy changes this file."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from weights import Tokenize

import gearcache

#: Every answer names it, so that a client can see which code has answered. Change it with `encode`.
RELEASE = "mean"

#: A call is padded to the next batch and the next length; a larger call runs eagerly.
BATCHES = (1, 4, 8)
LENGTHS = (16, 64)


class Encoder(nn.Module):
    """Computes embeddings of texts, each of length 1."""

    def __init__(self, bert: nn.Module, tokenize: Tokenize, *, backend: str) -> None:
        super().__init__()
        self.bert = bert
        self.tokenize = tokenize
        batch = gearcache.Symbol("batch", gears=BATCHES)
        length = gearcache.Symbol("length", gears=LENGTHS)
        self.cached = gearcache.cache_compile(
            self.encode,
            gears={"ids": {0: batch, 1: length}, "mask": {0: batch, 1: length}},
            config=gearcache.CompilerConfig(backend=backend, on_miss="pad", pad_values={"ids": 0, "mask": 0}),
        )

    def encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return one embedding (rows, hidden) for ids (rows, length), int64; `mask` is 0 at padding and 1 elsewhere."""
        states = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        pooled = (states * weights).sum(1) / weights.sum(1).clamp(min=1)
        return nn.functional.normalize(pooled, dim=-1)

    def inputs(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return ids and mask (texts, tokens of the longest), int64. The cached method pads them up to a gear."""
        rows = self.tokenize(texts)
        longest = max(len(row) for row in rows)
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        return ids, mask
