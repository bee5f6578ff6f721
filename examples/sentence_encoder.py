"""A sentence encoder whose entire computation, including pooling, is one cached method."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import gearcache

#: A call is padded to the next batch size and the next length.
BATCHES = (1, 4)
LENGTHS = (16, 32)


class SentenceEncoder(torch.nn.Module):
    """The mean of the last hidden states over the real tokens, normalised to length 1."""

    def __init__(self, model: Any, tokenizer: Any, *, backend: str, cache_dir: Path) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        config = gearcache.CompilerConfig(backend=backend, strict=True)
        config.inference_config.dynamic_gears_merge_policy = "product"
        # The mask follows `ids`: pooling multiplies the two, which proves that their sizes are equal.
        self.cached_encode = gearcache.cache_compile(
            self.encode, config=config, cache_dir=cache_dir, gears={"ids": {0: BATCHES, 1: LENGTHS}}
        )

    def encode(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return one embedding per row of `ids`; `mask` is 0 at padding."""
        states = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        mean = (states * weights).sum(1) / weights.sum(1).clamp(min=1)
        return torch.nn.functional.normalize(mean, dim=-1)

    def pad(self, sentences: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the arguments of `encode`, padded on the right to a gear."""
        rows = [self.tokenizer(sentence)["input_ids"] for sentence in sentences]
        batch = next(size for size in BATCHES if size >= len(rows))
        length = next(size for size in LENGTHS if size >= max(len(row) for row in rows))
        ids = torch.zeros(batch, length, dtype=torch.long)
        mask = torch.zeros(batch, length, dtype=torch.long)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = torch.tensor(row)
            mask[index, : len(row)] = 1
        return ids, mask

    def eager_embeddings(self, sentences: Sequence[str]) -> torch.Tensor:
        """Return the embedding of each sentence by eager PyTorch, alone and without padding."""
        rows = [self.tokenizer(sentence, return_tensors="pt") for sentence in sentences]
        return torch.cat([self.encode(row["input_ids"], row["attention_mask"]) for row in rows])

    def rate(self, encode: Callable[..., torch.Tensor], sentences: Sequence[str], calls: int = 20) -> float:
        """Return calls per second of `encode`, cached or not."""
        arguments = self.pad(sentences)
        encode(*arguments)
        begin = time.perf_counter()
        for _ in range(calls):
            encode(*arguments)
        return calls / (time.perf_counter() - begin)
