"""Reads one call of the model by `generate`, or finds the reason why no graph serves it."""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from msgspec import Struct
from transformers import Cache, DynamicCache, EncoderDecoderCache

from gearcache.integrations.misses import UnservedCall
from gearcache.integrations.transformers.sequence_cache import SequenceCache
from gearcache.integrations.transformers.support import CACHE

#: Arguments that a served call may have; graphs take no other argument that is not None or False.
_ARGUMENTS = {
    "input_ids",
    "attention_mask",
    "position_ids",
    CACHE,
    "use_cache",
    "logits_to_keep",
    "return_dict",
}


class ModelCall(Struct, frozen=True):
    """Tokens to read after those in the cache. A call without a cache is the first one of a generation."""

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
        """The number of tokens of each row."""
        return int(self.input_ids.shape[1])


def read_call(
    args: tuple[Any, ...], kwargs: dict[str, Any], owner: str, device: torch.device, *, is_hooked: bool = False
) -> ModelCall | UnservedCall:
    """Return the content of a call of the model, or the reason why no graph can answer it.

    `device` is the model's; `is_hooked` says that hooks see the result, which otherwise only `generate` reads.
    """
    if (miss := other_arguments(args, kwargs, _ARGUMENTS)) is not None:
        return miss
    ids, mask, positions = (kwargs.get(name) for name in ("input_ids", "attention_mask", "position_ids"))
    if not are_tokens(ids, device):
        return UnservedCall("input_ids", in_words(ids), f"int64 tokens of the shape (batch, tokens) on {device}")
    if kwargs.get("use_cache") is not True:
        return UnservedCall("use_cache", repr(kwargs.get("use_cache")), "True")
    keep = kwargs.get("logits_to_keep", 0 if is_hooked else 1)
    if not isinstance(keep, int) or (keep != 1 and ids.shape[1] > 1):
        return UnservedCall("logits_to_keep", in_words(keep), "1: the last token of each prompt")
    cache, past = kwargs.get(CACHE), 0
    if isinstance(cache, SequenceCache):
        if cache.owner != owner:
            return UnservedCall(CACHE, "the cache of another model", "a cache of this model, or none")
        if cache.rows != ids.shape[0]:
            description = "a cache that was changed" if cache.rows is None else f"a cache of {cache.rows} rows"
            return UnservedCall(CACHE, description, f"one of {ids.shape[0]} rows, as `input_ids` has")
        past = cache.get_seq_length()
    elif not is_new(cache):
        return UnservedCall(CACHE, in_words(cache), "none, or what an attached `generate` has returned")
    else:
        cache = None
    if mask is not None and not is_mask(mask, (ids.shape[0], past + ids.shape[1])):
        return UnservedCall(
            "attention_mask", in_words(mask), "a mask of bools or ints of the shape (batch, tokens so far)"
        )
    rows = {1, ids.shape[0]}
    if positions is not None and not (
        are_tokens(positions, device) and positions.shape[0] in rows and positions.shape[1] == ids.shape[1]
    ):
        return UnservedCall(
            "position_ids", in_words(positions), f"int64 positions of the shape (batch, tokens) on {device}"
        )
    return ModelCall(ids, mask, positions, cache, past)


def other_arguments(args: tuple[Any, ...], kwargs: dict[str, Any], allowed: set[str]) -> UnservedCall | None:
    """Return an argument that no graph takes; None if there is none."""
    if args:
        return UnservedCall("args", f"{len(args)} arguments by position", "arguments by name")
    for name, value in kwargs.items():
        if name not in allowed and value is not None and value is not False:
            return UnservedCall(name, "given", ", ".join(sorted(allowed)))
    return None


def is_new(cache: Any) -> bool:
    """Whether the cache is the empty one that `generate` makes, or for an encoder-decoder the pair of these."""
    is_pair = type(cache) is EncoderDecoderCache
    parts = (cache.self_attention_cache, cache.cross_attention_cache) if is_pair else (cache,)
    return not getattr(cache, "_is_user_defined", False) and all(
        type(part) is DynamicCache and not part.offloading and part.get_seq_length() == 0 for part in parts
    )


def are_tokens(ids: Any, device: torch.device) -> TypeGuard[torch.Tensor]:
    """Whether ids are int64 (batch, tokens): a single kind of tensors, so that all calls share the same graphs."""
    return (
        type(ids) is torch.Tensor
        and ids.ndim == 2
        and (ids.dtype, ids.device) == (torch.int64, device)
        and 0 not in ids.shape
    )


def is_mask(mask: Any, shape: tuple[int, int]) -> TypeGuard[torch.Tensor]:
    """Whether a mask has one int or bool per token: models take a fraction for seen, so floats are not accepted."""
    return type(mask) is torch.Tensor and mask.shape == shape and not (mask.is_floating_point() or mask.is_complex())


def sees_nothing() -> UnservedCall:
    """Return the `UnservedCall` for a mask that hides everything from a token whose logits are used.

    Attention is then even over all hidden slots, and a graph has more slots than the model itself has tokens.
    """
    return UnservedCall(
        "attention_mask", "one that hides all tokens of a row", "masks with which each row sees a token"
    )


def other_weights() -> UnservedCall:
    """Return the `UnservedCall` for a cache that the model made before it was cast or moved."""
    return UnservedCall(CACHE, "of other weights", "a cache of the dtype and device that the model has")


def in_words(value: Any) -> str:
    """Return a description of an argument, for a message."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dtype} with the shape {tuple(value.shape)}"
    if isinstance(value, Cache):
        return f"a {type(value).__name__} of {value.get_seq_length()} tokens"
    return repr(value) if value is None or isinstance(value, int) else f"a {type(value).__name__}"
