"""Decides which models can be attached, says why one cannot, and names their cache in this release of transformers."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import torch
import transformers
from transformers.cache_utils import get_layer_types_and_kwargs
from transformers.modeling_outputs import CausalLMOutputWithPast

from gearcache.errors import UnsupportedMethod
from gearcache.guards.evidence.names import a_type
from gearcache.integrations.transformers.slots import LayerShapes

#: Kinds of layers in which a token sees no later token, and stores only keys and values.
LAYER_TYPES = ("full_attention", "sliding_attention")
ATTENTION = ("sdpa", "eager")
#: Encoder-decoders whose encoder gives each token the same result next to masked filling: not those that attend in
#: blocks or count tokens.
ENCODER_DECODERS = (
    "bart",
    "blenderbot",
    "blenderbot-small",
    "m2m_100",
    "marian",
    "mbart",
    "mt5",
    "pegasus",
    "t5",
    "umt5",
)


def check_model(model: Any) -> None:
    """Raise `UnsupportedMethod` for a model whose `generate` cannot run from slots."""
    if not isinstance(model, transformers.PreTrainedModel):
        raise UnsupportedMethod(f"attach_generate takes a model of transformers, not {a_type(model)}")
    reason = reason_against(model)
    if reason is not None:
        raise UnsupportedMethod(f"attach_generate cannot serve `{type(model).__name__}`: {reason}")


def reason_against(model: transformers.PreTrainedModel) -> str | None:
    """Return why the `generate` of a model cannot run from slots; None if it can."""
    config = model.config
    if not model.can_generate():
        return "it has no `generate`; `gearcache.attach` serves its calls"
    if model.main_input_name != "input_ids" or (config.get_text_config() is not config):
        return "it takes more than text; give a model of text alone"
    if config.is_encoder_decoder and config.model_type not in ENCODER_DECODERS:
        return f"of encoder-decoders, served are: {', '.join(ENCODER_DECODERS)}; this is a {config.model_type}"
    text_config = config.get_text_config(decoder=True)
    if model._is_stateful or not model._can_compile_fullgraph:
        return "transformers says that it takes no static cache (`_can_compile_fullgraph`)"
    if not takes_cache(model):
        return f"its `forward` takes no `{CACHE}`, as this release of transformers calls the cache"
    if not getattr(config, "is_causal", True):
        return "its tokens see the tokens after them (`config.is_causal` is False)"
    kinds = sorted(set(get_layer_types_and_kwargs(text_config)[0]) - set(LAYER_TYPES))
    if kinds:
        return f"it has layers of the kind {', '.join(map(repr, kinds))}; allowed: {', '.join(map(repr, LAYER_TYPES))}"
    if _has_dynamic_rope(config):
        return "its rotary embeddings are of the type 'dynamic', which computes them anew for longer texts"
    if config._attn_implementation not in ATTENTION:
        allowed = " and ".join(map(repr, ATTENTION))
        return f"its attn_implementation is {config._attn_implementation!r}; allowed: {allowed}"
    if told_shapes(model) is None and _is_split(model):
        return (
            "its layers lie on several devices, or are divided between processes in a way that its config does not tell"
        )
    return None


def _is_split(model: Any) -> bool:
    """Whether a model lies on several devices, or is divided between processes."""
    return len(set(getattr(model, "hf_device_map", {}).values())) > 1 or (getattr(model, "_tp_size", None) or 1) > 1


def _has_dynamic_rope(config: Any) -> bool:
    parameters = getattr(config, "rope_parameters", None) or {}
    # There may be one for each kind of layers.
    kinds = [parameters, *(value for value in parameters.values() if isinstance(value, dict))]
    return any(kind.get("rope_type") == "dynamic" for kind in kinds)


def has_windows(model: Any) -> bool:
    """Whether a token of some layer sees only the tokens next to it."""
    config = model.config.get_text_config(decoder=True)
    kinds = set(get_layer_types_and_kwargs(config)[0])
    return kinds != {"full_attention"} or getattr(config, "sliding_window", None) is not None


def told_shapes(model: Any) -> LayerShapes | None:
    """Return the number of heads, and the head sizes of keys and values, for each layer; None if no config tells.

    None for multi-head latent attention (DeepSeek): what such a layer keeps is up to the release of transformers.
    """
    shape = model._get_static_cache_init_shape()
    if shape is None:
        return None
    count = len(model.config.get_text_config(decoder=True).per_layer_config)
    every_heads, every_size = (item if isinstance(item, list) else [item] * count for item in shape)
    return [(heads, size, size) for heads, size in zip(every_heads, every_size, strict=True)]


def measured_shapes(model: Any) -> LayerShapes:
    """Return what `told_shapes` does, of what the model keeps of one token; `UnsupportedMethod` if that fails."""
    token = torch.zeros(1, 1, dtype=torch.int64, device=model.device)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            output = model.forward(input_ids=token, use_cache=True)
        layers = [(layer.keys, layer.values) for layer in output[CACHE].layers]
        return [(keys.shape[1], keys.shape[3], values.shape[3]) for keys, values in layers]
    except Exception as error:
        raise UnsupportedMethod(
            f"attach_generate cannot serve `{type(model).__name__}`: its config does not tell the sizes of its keys "
            f"and values, and one token does not either: {type(error).__name__}: {error}"
        ) from error


_NAMES = ("cache", "past_key_values")
_fields = {field.name for field in dataclasses.fields(CausalLMOutputWithPast)}
#: The name in this release: `past_key_values` up to 5.23.
CACHE: str = next(name for name in _NAMES if name in _fields)


def takes_cache(model: Any) -> bool:
    """Whether the forward of a model takes its cache under this release's name: user code may not."""
    return CACHE in inspect.signature(model.forward).parameters
