"""Small language models of transformers with random weights whose texts differ from prompt to prompt."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from gearcache.integrations.transformers import AttachedModel

#: Tests import transformers when they run: it takes seconds, and each process of pytest reads all files.
needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)

VOCABULARY = 97
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "num_key_value_heads": 4}
_GEMMA3 = {"head_dim": 8, "sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}
#: Multi-head latent attention: keys and values are of sizes that the release of transformers chooses.
_DEEPSEEK = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 16,
    "num_key_value_heads": None,
}
#: Name -> classes of model and config, and what the config has beside the sizes.
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {"head_dim": 8}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {"head_dim": 8}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {"head_dim": 8, "sliding_window": 6, "tie_word_embeddings": False}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", _GEMMA3),
    "mistral": ("MistralForCausalLM", "MistralConfig", {"sliding_window": 6}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", _GPT2),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", {}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", "DeepseekV3Config", _DEEPSEEK),
}
#: The same of encoder-decoders.
_OWN: dict[str, Any] = {
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "num_hidden_layers")),
    "decoder_start_token_id": 0,
    "forced_eos_token_id": None,
}
_BART = {
    "d_model": 32,
    **{f"{part}_{size}": value for part in ("encoder", "decoder") for size, value in (("layers", 1), ("ffn_dim", 48))},
    **{f"{part}_attention_heads": 4 for part in ("encoder", "decoder")},
    **_OWN,
}
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4, **_OWN}
ENCODER_DECODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "t5": ("T5ForConditionalGeneration", "T5Config", _T5),
    "bart": ("BartForConditionalGeneration", "BartConfig", _BART),
    "mt5": ("MT5ForConditionalGeneration", "MT5Config", _T5),
    "marian": ("MarianMTModel", "MarianConfig", _BART),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig", _BART),
    "m2m_100": ("M2M100ForConditionalGeneration", "M2M100Config", _BART),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", _BART),
    "umt5": ("UMT5ForConditionalGeneration", "UMT5Config", _T5),
    "blenderbot": ("BlenderbotForConditionalGeneration", "BlenderbotConfig", _BART),
    "blenderbot-small": ("BlenderbotSmallForConditionalGeneration", "BlenderbotSmallConfig", _BART),
}
#: What the graphs take whose entries several test files share (`mistral_entries`, `t5_entries`).
MISTRAL_SIZES: dict[str, Any] = {"batch": [2, 4], "prompt": [4, 16], "cache_length": 64}
T5_SIZES: dict[str, Any] = {"batch": [4], "prompt": [16], "cache_length": 24}


def cache_name() -> str:
    """Return the name of a model's cache, as an argument and in results."""
    try:
        major, minor = map(int, importlib.metadata.version("transformers").split(".")[:2])
    except importlib.metadata.PackageNotFoundError:
        return ""
    return "cache" if (major, minor) >= (5, 24) else "past_key_values"


CACHE = cache_name()


def attach_generate(model: Any, **options: Any) -> AttachedModel:
    """Call the function of the same name."""
    from gearcache.integrations.transformers import attach_generate as attach

    return attach(model, **options)


def language_model(family: str, **options: Any) -> Any:
    """Return a model in `eval()` mode; equal arguments give equal weights."""
    import transformers

    model, config, more = {**FAMILIES, **ENCODER_DECODERS}[family]
    sizes = {name: value for name, value in {**_SIZES, **more, **options}.items() if value is not None}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = getattr(transformers, model)(getattr(transformers, config)(**sizes)).eval()
        if made.device.type != "meta":
            for parameter in made.parameters():
                if parameter.ndim > 1:
                    parameter.data.normal_(0, 0.4)
    return made


def tokens(batch: int, length: int, seed: int = 0) -> torch.Tensor:
    """Return prompts, int64 (batch, length), without special tokens."""
    return torch.randint(3, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


def right_padded(batch: int, length: int) -> torch.Tensor:
    """Return the mask of prompts of which each is two tokens shorter than the one before it."""
    return (torch.arange(length)[None] < length - 2 * torch.arange(batch)[:, None]).long()


def left_padded(batch: int, length: int) -> torch.Tensor:
    """Return the mask of prompts of which each is one token shorter than the one before it."""
    return (torch.arange(length)[None] >= torch.arange(batch)[:, None]).long()
