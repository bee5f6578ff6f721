"""Greedy text generation with SmolLM2-135M through a cached prefill and a cached decode: cold, then relaunched.

`python examples/generate_text.py` starts both processes one after the other on a fresh cache and prints what each
spent its time on. It ends with an error unless both wrote the text that eager PyTorch writes, and unless the
relaunched process went without a trace, a compile and a compiler import of its own.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import stages

PROMPTS = (
    "The capital of France is",
    "Here is a short list of three fruits that many people eat for breakfast:",
    "Once upon a time there was a little robot who wanted to learn how to cook. One day",
    "Water boils when",
)
BATCHES = (1, 2, 4)
LENGTHS = (8, 16, 32)
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


def serve(options: argparse.Namespace) -> dict[str, Any]:
    """Be one serving process: load the model, warm both methods, generate, and report."""
    recorder = stages.Recorder(options.launched)
    with recorder.stage("import torch"):
        import torch
    with recorder.stage("import gearcache"):
        import gearcache

        gearcache.cache_compile  # noqa: B018  (names are imported at first use)
    with recorder.stage("import transformers"):
        import transformers

        transformers.utils.logging.disable_progress_bar()
        auto_model, auto_tokenizer = transformers.AutoModelForCausalLM, transformers.AutoTokenizer
        static_cache = transformers.StaticCache

    class Generator(torch.nn.Module):
        """A language model with the two methods of a server: one prompt in, then one token a step."""

        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model
            config = gearcache.CompilerConfig(backend=options.backend, strict=True)
            cached = {"config": config, "cache_dir": options.cache_dir}
            # The caches, masks and positions follow `ids`: only it needs gears.
            self.cached_prefill = gearcache.cache_compile(self.prefill, gears={"ids": {1: LENGTHS}}, **cached)
            self.cached_decode = gearcache.cache_compile(self.decode, gears={"ids": {0: BATCHES}}, **cached)

        def prefill(self, ids: Any, positions: Any, mask: Any, cache: Any) -> Any:
            """Read one prompt into an empty cache; returns the token after it."""
            return self._next(ids, positions, mask, cache)

        def decode(self, ids: Any, positions: Any, mask: Any, cache: Any) -> Any:
            """Read one token of each sequence; returns the tokens after them."""
            return self._next(ids, positions, mask, cache)

        def _next(self, ids: Any, positions: Any, mask: Any, cache: Any) -> Any:
            logits = self.model(
                input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
            ).logits
            return logits[:, -1].argmax(-1, keepdim=True)
    return {}
