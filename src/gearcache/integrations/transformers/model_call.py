"""One call of the model by `generate`, or why no graph serves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from transformers import Cache, DynamicCache

from gearcache.integrations.transformers.sequence_cache import SequenceCache

#: Arguments that a served call may have; any other one that is not None or False is none of a graph's.
_KNOWN = {
    "input_ids",
    "attention_mask",
    "position_ids",
    "past_key_values",
    "use_cache",
    "logits_to_keep",
    "return_dict",
}


class Miss(NamedTuple):
    """Why no graph serves a call: the argument, what it is, and what is allowed."""

    argument: str
    found: str
    allowed: str

    def __str__(self) -> str:
        return f"`{self.argument}` is {self.found}; served are: {self.allowed}"


@dataclass(frozen=True)
class ModelCall:
    """Tokens to read after those that the cache holds. Without a cache it is the first call of a generation."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor | None
    position_ids: torch.Tensor | None
    cache: SequenceCache | None
    past: int

    @property
    def rows(self) -> int:
        """The size of the batch."""
        return int(self.input_ids.shape[0])

    @property
    def tokens(self) -> int:
        """How many tokens each row has."""
        return int(self.input_ids.shape[1])


def read_call(args: tuple[Any, ...], kwargs: dict[str, Any], owner: str) -> ModelCall | Miss:
    """Return what a call of the model asks for, or why no graph can answer it."""
    if args:
        return Miss("args", f"{len(args)} arguments by position", "arguments by name")
    for name, value in kwargs.items():
        if name not in _KNOWN and value is not None and value is not False:
            return Miss(name, "given", ", ".join(sorted(_KNOWN)))
    ids, mask, positions = (kwargs.get(name) for name in ("input_ids", "attention_mask", "position_ids"))
    if not isinstance(ids, torch.Tensor) or ids.ndim != 2 or ids.dtype != torch.int64 or 0 in ids.shape:
        return Miss("input_ids", in_words(ids), "int64 tokens of the shape (batch, tokens)")
    if kwargs.get("use_cache") is not True:
        return Miss("use_cache", repr(kwargs.get("use_cache")), "True")
    keep = kwargs.get("logits_to_keep", 1)
    if not isinstance(keep, int) or (keep != 1 and ids.shape[1] > 1):
        return Miss("logits_to_keep", in_words(keep), "1: the last token of each prompt")
    cache, past = kwargs.get("past_key_values"), 0
    if isinstance(cache, SequenceCache):
        if cache.owner != owner:
            return Miss("past_key_values", "the cache of another model", "a cache of this model, or none")
        if cache.rows != ids.shape[0]:
            return Miss(
                "past_key_values", f"a cache of {cache.rows} rows", f"one of {ids.shape[0]}, as `input_ids` has"
            )
        past = cache.get_seq_length()
    elif not _is_new(cache):
        return Miss("past_key_values", in_words(cache), "none, or what an attached `generate` has returned")
    else:
        cache = None
    if mask is not None and (not isinstance(mask, torch.Tensor) or mask.shape != (ids.shape[0], past + ids.shape[1])):
        return Miss("attention_mask", in_words(mask), "a mask of the shape (batch, tokens so far)")
    if positions is not None and (
        not isinstance(positions, torch.Tensor) or positions.ndim != 2 or positions.shape[1] != ids.shape[1]
    ):
        return Miss("position_ids", in_words(positions), "positions of the shape (batch, tokens)")
    return ModelCall(ids, mask, positions, cache, past)


def _is_new(cache: Any) -> bool:
    """Whether it is the empty cache that `generate` makes, which nobody else holds."""
    return (
        type(cache) is DynamicCache
        and not cache.offloading
        and cache.get_seq_length() == 0
        and not getattr(cache, "_is_user_defined", False)
    )


def in_words(value: Any) -> str:
    """Return what an argument is, for a message."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dtype} with the shape {tuple(value.shape)}"
    if isinstance(value, Cache):
        return f"a {type(value).__name__} of {value.get_seq_length()} tokens"
    return repr(value) if value is None or isinstance(value, int) else f"a {type(value).__name__}"
