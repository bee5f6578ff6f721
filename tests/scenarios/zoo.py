"""Tiny Hugging Face models with random weights: prefill and decode of language models, and encoders."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    GemmaConfig,
    GemmaForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    StaticCache,
    ViTConfig,
    ViTModel,
    WhisperConfig,
)
from transformers.models.whisper.modeling_whisper import WhisperDecoder

from tests.support.scenarios import Run

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
DECODER = SMALL | {"num_key_value_heads": 2, "max_position_embeddings": 32}


class Served(nn.Module):
    """A language model with the two steps of serving."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model.eval()

    def prefill(self, ids: Tensor, cache: StaticCache, position: Tensor) -> Any:
        return self.model(input_ids=ids, past_key_values=cache, position_ids=position, use_cache=True)

    def decode(self, ids: Tensor, cache: StaticCache, position: Tensor) -> Any:
        return self.model(input_ids=ids, past_key_values=cache, position_ids=position, use_cache=True).logits[:, -1]


class Encoder(nn.Module):
    """A model whose one step takes tensors and returns the last hidden state."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model.eval()

    def text(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    def image(self, pixels: Tensor) -> Tensor:
        return self.model(pixel_values=pixels).last_hidden_state

    def speech(self, ids: Tensor, encoded: Tensor) -> Tensor:
        return self.model(input_ids=ids, encoder_hidden_states=encoded, use_cache=False).last_hidden_state


def static_cache(config: Any, batch: int) -> StaticCache:
    """Return an empty cache of 16 places."""
    cache = StaticCache(config=config, max_cache_len=16)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = config.num_key_value_heads
    cache.early_initialization(batch_size=batch, num_heads=heads, head_dim=head, dtype=torch.float32, device="cpu")
    return cache


def _serve(model: Any, run: Run) -> None:
    # While a compiler traces, transformers takes another form of attention than in eager: the last bit differs.
    run.tolerance = max(run.tolerance, 1e-6)
    served = Served(model)
    prefill = run.cache(served.prefill, gears={"ids": {0: [2, 4]}})
    decode = run.cache(served.decode, gears={"ids": {0: [2, 4]}})
    for batch in (2, 4):
        ours = static_cache(model.config, batch)
        theirs = copy.deepcopy(ours)
        ids, position = torch.randint(0, 64, (batch, 5)), torch.arange(5).expand(batch, 5).contiguous()
        with torch.no_grad():
            expected = served.prefill(ids, theirs, position).logits
        run.check(f"batch {batch}, prefill", prefill(ids, ours, position).logits, expected)
        for step in (5, 6):
            ids, position = torch.randint(0, 64, (batch, 1)), torch.full((batch, 1), step)
            with torch.no_grad():
                expected = served.decode(ids, theirs, position)
            run.check(f"batch {batch}, step {step}", decode(ids, ours, position), expected)
        for index, (ours_layer, their_layer) in enumerate(zip(ours.layers, theirs.layers, strict=True)):
            run.check(f"batch {batch}, keys {index}", ours_layer.keys, their_layer.keys)
            run.check(f"batch {batch}, values {index}", ours_layer.values, their_layer.values)


def llama(run: Run) -> None:
    _serve(LlamaForCausalLM(LlamaConfig(**DECODER)), run)


def qwen2(run: Run) -> None:
    _serve(Qwen2ForCausalLM(Qwen2Config(**DECODER)), run)


def gemma(run: Run) -> None:
    _serve(GemmaForCausalLM(GemmaConfig(**DECODER, head_dim=8)), run)


def mixtral(run: Run) -> None:
    config = MixtralConfig(**DECODER, num_local_experts=2, num_experts_per_tok=1)
    config._experts_implementation = "batched_mm"
    _serve(MixtralForCausalLM(config), run)


def whisper_decoder(run: Run) -> None:
    config = WhisperConfig(
        vocab_size=64,
        d_model=32,
        decoder_layers=2,
        decoder_attention_heads=4,
        decoder_ffn_dim=64,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    model = Encoder(WhisperDecoder(config))
    cached = run.cache(model.speech, gears={"ids": {0: [2, 3]}})
    for batch in (2, 3):
        run.compare(f"{batch}", cached, model.speech, torch.randint(3, 64, (batch, 4)), torch.randn(batch, 6, 32))


def bert(run: Run) -> None:
    model = Encoder(BertModel(BertConfig(**SMALL, max_position_embeddings=32)))
    cached = run.cache(model.text, gears={"ids": {0: [2, 3]}})
    for batch in (2, 3):
        mask = torch.ones(batch, 7, dtype=torch.int64)
        mask[0, 4:] = 0
        run.compare(f"{batch}", cached, model.text, torch.randint(0, 64, (batch, 7)), mask)


def vit(run: Run) -> None:
    sizes = {name: value for name, value in SMALL.items() if name != "vocab_size"}
    model = Encoder(ViTModel(ViTConfig(**sizes, image_size=16, patch_size=8)))
    cached = run.cache(model.image, gears={"pixels": {0: [2, 3]}})
    for batch in (2, 3):
        run.compare(f"{batch}", cached, model.image, torch.randn(batch, 3, 16, 16))
