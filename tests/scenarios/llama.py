"""A tiny random Llama that decodes with a `StaticCache`."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache
from transformers.modeling_outputs import CausalLMOutputWithPast

from tests.support.scenarios import Run

CONFIG = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=32,
)


class Served(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = LlamaForCausalLM(CONFIG).eval()

    def decode(self, ids: Tensor, cache: StaticCache, position: Tensor) -> CausalLMOutputWithPast:
        return self.model(input_ids=ids, past_key_values=cache, position_ids=position, use_cache=True)


def _cache(batch: int) -> StaticCache:
    cache = StaticCache(config=CONFIG, max_cache_len=16)
    cache.early_initialization(batch_size=batch, num_heads=2, head_dim=8, dtype=torch.float32, device="cpu")
    return cache


def decode_with_static_cache(run: Run) -> None:
    served = Served()
    cached = run.cache(served.decode, gears={"ids": {0: [1, 2, 4]}})
    for batch in (2, 1, 4):
        ours = _cache(batch)
        theirs = copy.deepcopy(ours)
        for step in range(3):
            ids, position = torch.randint(0, 64, (batch, 1)), torch.full((batch, 1), step)
            with torch.no_grad():
                expected = served.decode(ids, theirs, position)
            found = cached(ids, ours, position)
            label = f"batch {batch}, step {step}"
            run.check(f"{label}, type", type(found).__name__, "CausalLMOutputWithPast")
            run.check(f"{label}, logits", found.logits, expected.logits)
            run.check(f"{label}, cache", found.past_key_values is ours, True)
            for ours_layer, their_layer in zip(ours.layers, theirs.layers, strict=True):
                run.check(f"{label}, {len(run.checks)}", ours_layer.keys, their_layer.keys)
                run.check(f"{label}, {len(run.checks)}", ours_layer.values, their_layer.values)
