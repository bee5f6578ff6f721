"""Reads one call of an encoder-decoder or its encoder by `generate`, or finds why no graph serves it."""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from msgspec import Struct
from transformers import EncoderDecoderCache

from gearcache.integrations.misses import UnservedCall
from gearcache.integrations.transformers.model_call import (
    are_tokens,
    in_words,
    is_mask,
    is_new,
    other_arguments,
    sees_nothing,
)
from gearcache.integrations.transformers.sequence_cache import SequenceCache
from gearcache.integrations.transformers.support import CACHE

_OF_ENCODER = {"input_ids", "attention_mask", "return_dict"}
_OF_MODEL = {"decoder_input_ids", "attention_mask", "encoder_outputs", CACHE, "use_cache", "return_dict"}


class SequencePair(EncoderDecoderCache):  # type: ignore[misc]
    """The caches of one generation: of the decoder's tokens, and of the encoder's tokens."""

    def __init__(self, own: SequenceCache, encoded: SequenceCache) -> None:
        super().__init__(own, encoded)

    @property
    def caches(self) -> tuple[SequenceCache, SequenceCache]:
        """Both caches."""
        return self.self_attention_cache, self.cross_attention_cache


class Seq2SeqCall(Struct, frozen=True):
    """Tokens for the decoder to read. A call without a cache is the first one of a generation."""

    input_ids: torch.Tensor
    hidden_states: torch.Tensor
    attention_mask: torch.Tensor
    cache: SequencePair | None
    past: int

    @property
    def rows(self) -> int:
        """The size of the batch."""
        return int(self.input_ids.shape[0])


def read_encoder_call(
    args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor] | UnservedCall:
    """Return tokens and mask, (batch, tokens) each, or why no graph encodes them."""
    miss = other_arguments(args, kwargs, _OF_ENCODER)
    ids: Any = kwargs.get("input_ids")
    if miss is not None:
        return miss
    if not are_tokens(ids, device):
        return UnservedCall("input_ids", in_words(ids), f"int64 tokens of the shape (batch, tokens) on {device}")
    return _with_mask(ids, kwargs.get("attention_mask"))


def read_seq2seq_call(
    args: tuple[Any, ...], kwargs: dict[str, Any], owner: str, sample: torch.Tensor, *, is_hooked: bool = False
) -> Seq2SeqCall | UnservedCall:
    """Return the content of a call of the model, or the reason why no graph can answer it.

    `sample` has the dtype and device of hidden states and their size as its last dim; `is_hooked` says that hooks see
    the result, which otherwise only `generate` reads.
    """
    miss = other_arguments(args, kwargs, _OF_MODEL)
    if miss is not None:
        return miss
    ids: Any = kwargs.get("decoder_input_ids")
    encoded, cache = kwargs.get("encoder_outputs"), kwargs.get(CACHE)
    if not are_tokens(ids, sample.device) or (is_hooked and ids.shape[1] > 1):
        allowed = f"int64 tokens of the shape (batch, {'1' if is_hooked else 'tokens'}) on {sample.device}"
        return UnservedCall("decoder_input_ids", in_words(ids), allowed)
    if kwargs.get("use_cache") is not True:
        return UnservedCall("use_cache", repr(kwargs.get("use_cache")), "True")
    hidden = encoded[0] if encoded is not None else None
    if not _are_states(hidden, sample) or hidden.shape[0] != ids.shape[0]:
        allowed = (
            f"hidden states of {sample.dtype} with the shape (batch, tokens, {sample.shape[-1]}) on {sample.device}"
        )
        return UnservedCall("encoder_outputs", in_words(hidden), allowed)
    tokens_and_mask = _with_mask(hidden[:, :, 0], kwargs.get("attention_mask"))
    if isinstance(tokens_and_mask, UnservedCall):
        return tokens_and_mask
    if not isinstance(cache, SequencePair):
        if not is_new(cache):
            return UnservedCall(CACHE, in_words(cache), "none, or what an attached `generate` has returned")
        return Seq2SeqCall(ids, hidden, tokens_and_mask[1], None, 0)
    own, encoded_cache = cache.caches
    if (
        own.owner != owner
        or {own.rows, encoded_cache.rows} != {ids.shape[0]}
        or encoded_cache.get_seq_length() != hidden.shape[1]
    ):
        return UnservedCall(CACHE, "of another model, batch or prompt", "what an attached `generate` has returned")
    return Seq2SeqCall(ids, hidden, tokens_and_mask[1], cache, own.get_seq_length())


def _are_states(hidden: Any, sample: torch.Tensor) -> TypeGuard[torch.Tensor]:
    return (
        isinstance(hidden, torch.Tensor)
        and hidden.ndim == 3
        and (hidden.dtype, hidden.device, hidden.shape[2]) == (sample.dtype, sample.device, sample.shape[-1])
        and 0 not in hidden.shape
    )


def _with_mask(tokens: torch.Tensor, mask: Any) -> tuple[torch.Tensor, torch.Tensor] | UnservedCall:
    """Return tokens and their mask; all ones if none is given."""
    if mask is None:
        return tokens, torch.ones(tokens.shape, dtype=torch.long, device=tokens.device)
    if not is_mask(mask, (tokens.shape[0], tokens.shape[1])):
        return UnservedCall("attention_mask", in_words(mask), "a mask of bools or ints of the shape (batch, tokens)")
    return (tokens, mask) if mask.any(1).all() else sees_nothing()
