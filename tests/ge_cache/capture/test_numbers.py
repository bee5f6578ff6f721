"""Ints that a method writes, beside the scenarios of numbers: past 64 bits, and those of a cache of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from tests.scenarios.numbers import Machine
from tests.support.scenarios import strict_config

pytestmark = pytest.mark.slow


def test_an_int_of_more_than_64_bits_raises_what_eager_raises(cache_dir: Path) -> None:
    machine = Machine()
    cached = gearcache.cache_compile(machine.arithmetic, config=strict_config())
    cached(torch.ones(2))
    machine.position = 2**63 - 2
    with torch.no_grad(), pytest.raises(OverflowError, match="too big"):
        cached(torch.ones(2))
    assert machine.position == 2**63 - 1, "the method itself has counted, once"


def test_a_sliding_window_cache_takes_few_variants(cache_dir: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = _model(transformers)
    cached = gearcache.cache_compile(model.forward, config=strict_config(), dynamic=False)
    with torch.inference_mode():
        expected, found = (_generated(transformers, model, forward) for forward in (model.forward, cached))
    assert torch.equal(expected, found)
    # The prefill, and decode before, at and after the step on which the window is full.
    assert len(cached._binding.loaded.variants) <= 4


def _model(transformers: Any) -> Any:
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 128, "sliding_window": 4}
    torch.manual_seed(0)
    return transformers.MistralForCausalLM(transformers.MistralConfig(**sizes, **heads)).eval()


def _generated(transformers: Any, model: Any, forward: Any) -> torch.Tensor:
    from gearcache.integrations.transformers.cache_name import CACHE

    cache = transformers.StaticCache(config=model.config, max_cache_len=16)
    ids = torch.arange(2)[None]
    logits = []
    for _ in range(6):
        found = forward(input_ids=ids, **{CACHE: cache}, use_cache=True).logits[:, -1:]
        logits.append(found)
        ids = found.argmax(-1)
    return torch.cat(logits)
