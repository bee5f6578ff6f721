"""What transformers calls the cache of a model, as an argument and in what a model returns: 5.24 renamed it."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from transformers.modeling_outputs import CausalLMOutputWithPast

_NAMES = ("cache", "past_key_values")
_fields = {field.name for field in dataclasses.fields(CausalLMOutputWithPast)}
#: Of this release: `past_key_values` up to 5.23.
CACHE: str = next(name for name in _NAMES if name in _fields)


def takes_cache(model: Any) -> bool:
    """Whether the forward of a model takes its cache by the name that this release has: code of users may not."""
    return CACHE in inspect.signature(model.forward).parameters
