"""Checks whether the installed transformers has the names and parameters that the integrations rely on."""

from __future__ import annotations

import importlib
import inspect
import logging
from typing import Any

logger = logging.getLogger("gearcache")
#: The releases with which the tests of the integrations have passed; `setup.cfg` allows them in the extras.
TRANSFORMERS = ((5, 20), (5, 22), (5, 23), (5, 24))
_TRIED = ", ".join(f"{major}.{minor}" for major, minor in TRANSFORMERS)
_MIXIN = "cache_utils.CacheLayerMixin"
#: The names below `transformers` that `gearcache.integrations.transformers` uses, with the parameters that it passes.
RELIED_ON: dict[str, tuple[str, ...]] = {
    "PreTrainedModel._can_compile_fullgraph": (),
    "PreTrainedModel.can_generate": (),
    "generation.GenerationMixin._get_static_cache_init_shape": (),
    "generation.GenerationMixin._optimize_model_for_decode": (),
    "generation.GenerationMixin._prepare_cache_for_generation": (
        "generation_config",
        "model_kwargs",
        "generation_mode",
        "max_cache_length",
    ),
    "generation.GenerationMixin.generate": ("custom_generate",),
    "generation.configuration_utils.ALL_STATIC_CACHE_IMPLEMENTATIONS": (),
    "PreTrainedConfig.get_text_config": ("decoder",),
    "PreTrainedConfig.per_layer_config": (),
    "cache_utils.get_layer_types_and_kwargs": ("config",),
    "cache_utils.Cache.__init__": ("layers", "offloading"),
    "cache_utils.Cache.get_seq_length": (),
    "cache_utils.DynamicCache.__init__": (),
    "cache_utils.EncoderDecoderCache.__init__": (),
    f"{_MIXIN}.lazy_initialization": ("key_states", "value_states"),
    f"{_MIXIN}.update": ("key_states", "value_states"),
    f"{_MIXIN}.get_mask_sizes": ("query_length",),
    f"{_MIXIN}.get_seq_length": (),
    "cache_utils.DynamicLayer.reorder_cache": ("beam_idx",),
    "cache_utils.DynamicLayer.get_seq_length": (),
    "modeling_outputs.BaseModelOutput.__init__": ("last_hidden_state",),
    "modeling_outputs.CausalLMOutputWithPast.__init__": ("logits",),
    "modeling_outputs.Seq2SeqLMOutput.__init__": ("logits", "encoder_last_hidden_state"),
}
#: What a cache layer has to define: `decoder.SlotLayer` defines these; a layer that needs more is not supported.
_DEFINED = {
    "get_mask_sizes",
    "get_max_cache_shape",
    "get_max_length",
    "get_seq_length",
    "lazy_initialization",
    "update",
}
#: Releases and integrations that this process has warned about.
_warned: set[tuple[str, str]] = set()


def transformers_problem(integration: str, extra: str, relied_on: dict[str, tuple[str, ...]] | None = None) -> str:
    """Return what the installed transformers lacks for an integration; empty if nothing is missing.

    Warns, once, about a release that was not tried.
    """
    import transformers

    version = transformers.__version__
    missing = lacking(RELIED_ON if relied_on is None else relied_on)
    if missing:
        return (
            f"gearcache.integrations.{integration} was tried with transformers {_TRIED}, this is {version}, which "
            f"lacks {', '.join(missing)}: `pip install 'gearcache[{extra}]'`; `gearcache.attach(model, …)` does "
            "without it"
        )
    if (
        tuple(int(part) for part in version.split(".")[:2]) not in TRANSFORMERS
        and (version, integration) not in _warned
    ):
        _warned.add((version, integration))
        logger.warning(
            "gearcache.integrations.%s was tried with transformers %s, this is %s: what is relied on is there",
            integration,
            _TRIED,
            version,
        )
    return ""


def lacking(relied_on: dict[str, tuple[str, ...]]) -> list[str]:
    """Return names that transformers lacks, and its functions that lack a parameter or require another one."""
    missing = [f"`{name}`" for name in relied_on if _value(name) is None]
    for name, parameters in relied_on.items():
        if f"`{name}`" not in missing and parameters:
            signature = inspect.signature(_value(name)).parameters
            missing += [f"`{parameter}=` of `{name}`" for parameter in parameters if parameter not in signature]
    if f"{_MIXIN}.update" in relied_on and (mixin := _value(_MIXIN)) is not None:
        missing += [f"a known `{_MIXIN}.{name}`" for name in sorted(mixin.__abstractmethods__ - _DEFINED)]
    return missing


def _value(name: str) -> Any:
    """Return the object of a name below transformers; None if it does not exist."""
    parts = name.split(".")
    value: Any = importlib.import_module("transformers")
    for index, part in enumerate(parts, 1):
        if hasattr(value, part):
            value = getattr(value, part)
            continue
        try:
            value = importlib.import_module(".".join(["transformers", *parts[:index]]))
        except ImportError:
            return None
    return value
