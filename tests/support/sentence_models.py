"""Small models of sentence-transformers with random weights, and a tokenizer made of words."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch

#: Tests import the library when they run, as in `language_models`.
needs_sentence_transformers = pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None, reason="sentence_transformers is not installed"
)
WORDS = [
    *("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while"),
    *("seven", "wizards", "quietly", "brew", "some", "tea", "near", "an", "old", "mill"),
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
LONGEST = 32
_SIZES: dict[str, Any] = {
    "vocab_size": len(WORDS) + len(SPECIAL),
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": LONGEST + 8,
    "pad_token_id": 0,
}
#: Name -> class of the config, and what it has beside the sizes.
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertConfig", {}),
    "mpnet": ("MPNetConfig", {}),
    "distilbert": ("DistilBertConfig", {"dim": 16, "hidden_dim": 24, "n_layers": 1, "n_heads": 2}),
    "roberta": ("RobertaConfig", {}),
    "t5": ("T5Config", {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}),
    "modernbert": ("ModernBertConfig", {"local_attention": 6}),
    "qwen3": ("Qwen3Config", {"head_dim": 8}),
    "albert": ("AlbertConfig", {"embedding_size": 16}),
    "electra": ("ElectraConfig", {"embedding_size": 16}),
    "xlm-roberta": ("XLMRobertaConfig", {}),
    "camembert": ("CamembertConfig", {}),
}


def attach_encode(model: Any, **options: Any) -> Any:
    """Call the function of the same name."""
    from gearcache.integrations.sentence_transformers import attach_encode as attach

    return attach(model, **options)


def sentence_model(folder: Path, architecture: str = "bert", pooling: Any = "mean", **options: Any) -> Any:
    """Return a model on a CPU; the same weights for the same arguments.

    - `options`: `padding_side` of the tokenizer, `has_special` (whether each text is between two tokens of its own),
      and those of `SentenceTransformer`.
    """
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    side, has_special = options.pop("padding_side", "right"), options.pop("has_special", True)
    include_prompt = options.pop("include_prompt", True)
    kind, own = ARCHITECTURES[architecture]
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(5)
    config = getattr(transformers, kind)(**{**_SIZES, **own})
    model = transformers.T5EncoderModel(config) if architecture == "t5" else transformers.AutoModel.from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # texts differ more than they would with the weights of a beginner
    model.save_pretrained(folder)
    tokenizer(folder, side, has_special)
    modules = [Transformer(str(folder)), Pooling(16, pooling, include_prompt=include_prompt), Normalize()]
    found = SentenceTransformer(modules=modules, device="cpu", **options)
    found.max_seq_length = LONGEST
    return found.eval()


def tokenizer(folder: Path, side: str, has_special: bool) -> None:
    """Write a tokenizer that splits at spaces."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({word: index for index, word in enumerate(SPECIAL + WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if has_special:
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=made, **names, padding_side=side).save_pretrained(folder)
    held = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**held, "model_max_length": LONGEST}))
