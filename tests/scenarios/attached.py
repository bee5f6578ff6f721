"""Modules of libraries: attached, called by themselves and by a model that has them."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import Run, strict_config, traced

IDS = torch.arange(2 * 8).view(2, 8) % 50
MASK = torch.ones_like(IDS)
MASK[0, :3] = 0
SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 50,
}
GENERATE: dict[str, Any] = {
    "attention_mask": MASK,
    "cache_implementation": "static",
    "disable_compile": True,
    "max_new_tokens": 6,
    "do_sample": False,
    "pad_token_id": 0,
}


def _attach(run: Run, module: nn.Module, **options: Any) -> Any:
    """Attach a module; its statistics go into the report."""
    return run.watch(gearcache.attach(module, config=strict_config(run.backend), **options))


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU()
        )
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)))


class Sentences(nn.Module):
    """An encoder with pooling behind it, which takes and gives a dictionary as those of sentence-transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = _bert()

    def forward(self, features: dict[str, Tensor], **options: Any) -> dict[str, Tensor]:
        tokens = self.encoder(**features).last_hidden_state
        mask = features["attention_mask"][..., None].float()
        pooled = (tokens * mask).sum(1) / mask.sum(1)
        return {**features, "sentence_embedding": nn.functional.normalize(pooled, dim=-1)}


def _bert() -> Any:
    from transformers import BertConfig, BertModel  # takes seconds

    return BertModel(BertConfig(**SMALL)).eval()


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**SMALL, num_key_value_heads=1, max_position_embeddings=64)).eval()


def a_convolutional_net(run: Run) -> None:
    """Batch gears."""
    net = ConvNet().eval()
    _attach(run, net, gears={"x": {0: [1, 2, 4]}})
    for batch in (2, 1, 4):
        run.compare(f"batch {batch}", net, net.forward, torch.randn(batch, 3, 12, 12))


def an_encoder_of_torch(run: Run) -> None:
    """`nn.TransformerEncoder` runs its layers through kernels of its own where it is not traced."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1).eval()
    hidden = torch.randn(2, 5, 16)
    _attach(run, encoder, dynamic=False)
    run.compare("plain", encoder, encoder.forward, hidden)
    if os.environ.get("THOROUGH"):  # the two others have no mask, and a mask
        causal = nn.Transformer.generate_square_subsequent_mask(5)
        run.compare("mask", encoder, encoder.forward, hidden, mask=causal, is_causal=True)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own kernels take nested tensors
        expected = encoder.forward(hidden, src_key_padding_mask=padding)
        found = encoder(hidden, src_key_padding_mask=padding)
    run.check("padding mask", found[~padding], expected[~padding])


@traced(1)
def sentence_vectors(run: Run) -> None:
    """A dictionary is given and comes out."""
    model = Sentences()
    sizes = {1: [4, 8]}
    gears = {"features['input_ids']": sizes, "features['attention_mask']": sizes}
    _attach(run, model, gears=gears)
    for length in (8, 4):
        features = {"input_ids": IDS[:, -length:].clone(), "attention_mask": MASK[:, -length:].clone()}
        run.compare(f"length {length}", model, model.forward, features)


@traced(1)
def layers_of_a_bert(run: Run) -> None:
    """Its layers are equal: one trace."""
    bert = _bert()
    with torch.no_grad():
        expected = bert(input_ids=IDS, attention_mask=MASK)
        served = [_attach(run, layer) for layer in bert.encoder.layer]
        found = bert(input_ids=IDS, attention_mask=MASK)
    run.check("result", found, expected)
    run.check("traces", sum(each.stats.traces for each in served), 0 if run.relaunched else 1)


@traced(3)
def generate(run: Run) -> None:
    """Prefill and decode of a static cache are two variants, whatever the cache object."""
    model = _llama()
    expected = model.generate(IDS, **GENERATE)
    _attach(run, model, dynamic=False)
    run.check("tokens", model.generate(IDS, **GENERATE), expected)
    run.check("again", model.generate(IDS, **GENERATE), expected)
    run.compare("logits", model, model.forward, input_ids=IDS, attention_mask=MASK, use_cache=False)


@traced(4)
def layers_of_a_llama(run: Run) -> None:
    """Each layer reads its number to find its part of the cache."""
    model = _llama()
    expected = model.generate(IDS, **GENERATE)
    for layer in model.model.layers:
        _attach(run, layer, dynamic=False)
    run.check("tokens", model.generate(IDS, **GENERATE), expected)
