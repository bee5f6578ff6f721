"""Encoders of transformers with random weights, `forward` as it is, whose batch and length are padded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    RobertaConfig,
    RobertaModel,
    ViTConfig,
    ViTModel,
)

import gearcache
from tests.support.scenarios import Run

SMALL: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
}
#: Batch and length: at gears, between them, at 1.
SIZES = ((2, 6), (3, 5), (4, 9), (1, 7), (1, 1), (2, 2), (3, 9), (4, 1), (1, 6))


class SentenceEncoder(nn.Module):
    """What sentence-transformers makes of MiniLM: a mean over the tokens that the mask names, of length 1."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(-1).expand(states.size()).float()
        pooled = (states * weights).sum(1) / torch.clamp(weights.sum(1), min=1e-9)
        return nn.functional.normalize(pooled, p=2, dim=1)


def _words(batch: int, length: int) -> dict[str, Tensor]:
    """Return rows of several lengths, as a tokenizer pads them; the last of four has no token at all."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[1:2, (length + 1) // 2 :] = 0
    mask[2:3, 1:] = 0
    mask[3:4] = 0
    return {"input_ids": torch.randint(2, 60, (batch, length)) * mask, "attention_mask": mask}


def _tensors(found: Any) -> Any:
    return found if isinstance(found, Tensor) else [found[name] for name in sorted(found.keys())]


def _serve(
    run: Run, model: nn.Module, arguments: Callable[[int, int], dict[str, Tensor]], dims: tuple[int, ...]
) -> None:
    model.eval()
    names = list(arguments(1, 1))
    paths = names if isinstance(model, SentenceEncoder) else [f"kwargs['{name}']" for name in names]
    symbols = {0: gearcache.Symbol("batch", gears=[2, 4]), 1: gearcache.Symbol("length", gears=[6, 9])}
    gears = {path: {dim: symbols[dim] for dim in dims} for path in paths}
    cached = run.pad(model.forward, gears, dict.fromkeys(paths, 0))
    for batch, length in SIZES:
        call = arguments(batch, length if 1 in dims else 6)
        with torch.no_grad():
            expected = _tensors(model.forward(**call))
        run.check(f"{batch} {length}", _tensors(cached(**call)), expected)


def bert(run: Run) -> None:
    _serve(run, BertModel(BertConfig(**SMALL)), _words, (0, 1))


def bert_with_a_padded_batch(run: Run) -> None:
    _serve(run, BertModel(BertConfig(**SMALL)), _words, (0,))


def bert_with_other_attention(run: Run) -> None:
    """Without `scaled_dot_product_attention` masks have the least number instead of -inf: the batch alone is padded."""
    config = BertConfig(**{**SMALL, "num_hidden_layers": 1}, attn_implementation="eager")
    _serve(run, BertModel(config), _words, (0,))


def roberta(run: Run) -> None:
    _serve(run, RobertaModel(RobertaConfig(**SMALL, pad_token_id=0)), _words, (0, 1))


def distilbert(run: Run) -> None:
    config = DistilBertConfig(vocab_size=60, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=24)
    _serve(run, DistilBertModel(config), _words, (0, 1))


def sentences(run: Run) -> None:
    _serve(run, SentenceEncoder(BertModel(BertConfig(**SMALL), add_pooling_layer=False)), _words, (0, 1))


def vit(run: Run) -> None:
    config = {name: value for name, value in SMALL.items() if name not in ("vocab_size", "max_position_embeddings")}
    config["num_hidden_layers"] = 1
    model = ViTModel(ViTConfig(**config, image_size=8, patch_size=4))
    _serve(run, model, lambda batch, _: {"pixel_values": torch.randn(batch, 3, 8, 8)}, (0,))
