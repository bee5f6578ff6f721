"""The name of a model's cache, as an argument and in the results: transformers 5.24 renamed it."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from transformers.modeling_outputs import CausalLMOutputWithPast

_NAMES = ("cache", "past_key_values")
_fields = {field.name for field in dataclasses.fields(CausalLMOutputWithPast)}
#: The name in this release: `past_key_values` up to 5.23.
CACHE: str = next(name for name in _NAMES if name in _fields)


def takes_cache(model: Any) -> bool:
    """Whether the forward of a model takes its cache under this release's name: user code may not."""
    return CACHE in inspect.signature(model.forward).parameters
