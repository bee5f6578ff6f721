"""A small language model with the two methods of a server, `prefill` and `decode`, both cached."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

import gearcache

#: Prompts of one batch are padded on the left to one of these lengths.
LENGTHS = (8, 16, 32)
BATCHES = (1, 2, 4)
NEW_TOKENS = 32
ROOM = LENGTHS[-1] + NEW_TOKENS


class LanguageModel(torch.nn.Module):
    """Greedy generation with static KV caches: prompts are read one by one, then decoded as a batch."""

    def __init__(self, model: Any, tokenizer: Any, *, backend: str, cache_dir: Path) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        config = gearcache.CompilerConfig(backend=backend, strict=True)
        self.cached_prefill = gearcache.cache_compile(
            self.prefill, config=config, cache_dir=cache_dir, gears={"ids": {1: LENGTHS}}
        )
        # Positions, mask and KV caches follow `ids`.
        self.cached_decode = gearcache.cache_compile(
            self.decode, config=config, cache_dir=cache_dir, gears={"ids": {0: BATCHES}}
        )
        self.prompt_cache = self.new_cache(1)
        self.caches = {batch: self.new_cache(batch) for batch in BATCHES}

    def prefill(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: transformers.StaticCache
    ) -> torch.Tensor:
        """Read one prompt into an empty cache; returns the token after it."""
        return self._next(ids, positions, mask, cache)

    def decode(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: transformers.StaticCache
    ) -> torch.Tensor:
        """Read one more token of each sequence; returns the tokens after them."""
        return self._next(ids, positions, mask, cache)

    def _next(self, ids: Any, positions: Any, mask: Any, cache: Any) -> torch.Tensor:
        output = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
        )
        return output.logits[:, -1].argmax(-1, keepdim=True)  # type: ignore[no-any-return]

    def new_cache(self, batch: int) -> transformers.StaticCache:
        """Return an empty cache whose tensors exist already."""
        config = self.model.config
        cache = transformers.StaticCache(config=config, max_cache_len=ROOM)
        cache.early_initialization(
            batch, config.num_key_value_heads, config.head_dim, torch.float32, torch.device("cpu")
        )
        return cache

    def prefill_call(self, tokens: Sequence[int], length: int) -> tuple[Any, ...]:
        """Return the arguments of `prefill` for one prompt, padded on the left to `length`."""
        padding = length - len(tokens)
        ids = torch.tensor([[0] * padding + list(tokens)])
        positions = (torch.arange(length) - padding).clamp(min=0)[None]
        self.prompt_cache.reset()
        return ids, positions, self._mask([padding]), self.prompt_cache

    def decode_call(self, token: torch.Tensor, lengths: Sequence[int], length: int) -> tuple[Any, ...]:
        """Return the arguments of the first `decode` after prompts of `lengths`, padded to `length`."""
        positions = torch.tensor([[count] for count in lengths])
        return token, positions, self._mask([length - count for count in lengths]), self.caches[len(lengths)]

    def _mask(self, paddings: Sequence[int]) -> torch.Tensor:
        return torch.arange(ROOM)[None] >= torch.tensor(paddings)[:, None]

    def read(self, prompts: Sequence[str], prefill: Callable[..., torch.Tensor]) -> tuple[Any, ...]:
        """Read the prompts with `prefill`, cached or not; returns the arguments of the first `decode`."""
        rows = [self.tokenizer(prompt)["input_ids"] for prompt in prompts]
        length = next(gear for gear in LENGTHS if gear >= max(len(row) for row in rows))
        first = []
        for index, row in enumerate(rows):
            first.append(prefill(*self.prefill_call(row, length)))
            for target, source in zip(self.caches[len(rows)].layers, self.prompt_cache.layers, strict=True):
                target.keys[index].copy_(source.keys[0])
                target.values[index].copy_(source.values[0])
                target.cumulative_length.copy_(source.cumulative_length)
        return self.decode_call(torch.cat(first), [len(row) for row in rows], length)

    def generate(
        self,
        prompts: Sequence[str],
        prefill: Callable[..., torch.Tensor],
        decode: Callable[..., torch.Tensor],
        tokens: int,
    ) -> tuple[list[str], float]:
        """Return the text after each prompt, and how many tokens a second `decode` made."""
        token, positions, mask, cache = self.read(prompts, prefill)
        columns = [token]
        begin = time.perf_counter()
        for _ in range(tokens - 1):
            token = decode(token, positions, mask, cache)
            columns.append(token)
            positions = positions + 1
        rate = len(prompts) * (tokens - 1) / (time.perf_counter() - begin)
        return [self._text(row) for row in torch.cat(columns, 1).tolist()], rate

    def eager_text(self, prompt: str, tokens: int) -> str:
        """Return what transformers' own `generate` writes: no padding, no batch, no static cache."""
        inputs = self.tokenizer(prompt, return_tensors="pt")
        output = self.model.generate(**inputs, do_sample=False, max_new_tokens=tokens)
        return self._text(output[0, inputs["input_ids"].shape[1] :].tolist())

    def _text(self, tokens: list[int]) -> str:
        end = self.tokenizer.eos_token_id
        return str(self.tokenizer.decode(tokens[: tokens.index(end)] if end in tokens else tokens))
