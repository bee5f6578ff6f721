"""One call of an encoder-decoder, or of its encoder, by `generate`; or why no graph serves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache, EncoderDecoderCache

from gearcache.integrations.transformers.model_call import Miss, in_words
from gearcache.integrations.transformers.sequence_cache import SequenceCache

_OF_ENCODER = {"input_ids", "attention_mask", "return_dict"}
_OF_MODEL = {"decoder_input_ids", "attention_mask", "encoder_outputs", "past_key_values", "use_cache", "return_dict"}


class SequencePair(EncoderDecoderCache):  # type: ignore[misc]
    """The caches of one generation: of the decoder's tokens, and of what the encoder has read."""

    def __init__(self, own: SequenceCache, encoded: SequenceCache) -> None:
        super().__init__(own, encoded)

    @property
    def caches(self) -> tuple[SequenceCache, SequenceCache]:
        """Both caches."""
        return self.self_attention_cache, self.cross_attention_cache


@dataclass(frozen=True)
class Seq2SeqCall:
    """Tokens for the decoder to read. Without a cache it is the first call of a generation."""

    input_ids: torch.Tensor
    hidden_states: torch.Tensor
    attention_mask: torch.Tensor
    cache: SequencePair | None
    past: int

    @property
    def rows(self) -> int:
        """The size of the batch."""
        return int(self.input_ids.shape[0])


def read_encoder_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor] | Miss:
    """Return tokens and mask, (batch, tokens) each, or why no graph encodes them."""
    miss = _unknown(args, kwargs, _OF_ENCODER)
    ids: Any = kwargs.get("input_ids")
    if miss is not None:
        return miss
    if not _are_tokens(ids):
        return Miss("input_ids", in_words(ids), "int64 tokens of the shape (batch, tokens)")
    return _with_mask(ids, kwargs.get("attention_mask"))


def read_seq2seq_call(args: tuple[Any, ...], kwargs: dict[str, Any], owner: str) -> Seq2SeqCall | Miss:
    """Return what a call of the model asks for, or why no graph can answer it."""
    miss = _unknown(args, kwargs, _OF_MODEL)
    if miss is not None:
        return miss
    ids: Any = kwargs.get("decoder_input_ids")
    encoded, cache = kwargs.get("encoder_outputs"), kwargs.get("past_key_values")
    if not _are_tokens(ids):
        return Miss("decoder_input_ids", in_words(ids), "int64 tokens of the shape (batch, tokens)")
    if kwargs.get("use_cache") is not True:
        return Miss("use_cache", repr(kwargs.get("use_cache")), "True")
    hidden = encoded[0] if encoded is not None else None
    if not isinstance(hidden, torch.Tensor) or hidden.ndim != 3 or hidden.shape[0] != ids.shape[0]:
        return Miss("encoder_outputs", in_words(hidden), "hidden states of the shape (batch, tokens, size)")
    masked = _with_mask(hidden[:, :, 0], kwargs.get("attention_mask"))
    if isinstance(masked, Miss):
        return masked
    if not isinstance(cache, SequencePair):
        if not _is_new(cache):
            return Miss("past_key_values", in_words(cache), "none, or what an attached `generate` has returned")
        return Seq2SeqCall(ids, hidden, masked[1], None, 0)
    own, read = cache.caches
    if own.owner != owner or {own.rows, read.rows} != {ids.shape[0]} or read.get_seq_length() != hidden.shape[1]:
        return Miss("past_key_values", "of another model, batch or prompt", "what an attached `generate` has returned")
    return Seq2SeqCall(ids, hidden, masked[1], cache, own.get_seq_length())


def _unknown(args: tuple[Any, ...], kwargs: dict[str, Any], known: set[str]) -> Miss | None:
    if args:
        return Miss("args", f"{len(args)} arguments by position", "arguments by name")
    for name, value in kwargs.items():
        if name not in known and value is not None and value is not False:
            return Miss(name, "given", ", ".join(sorted(known)))
    return None


def _are_tokens(ids: Any) -> bool:
    return isinstance(ids, torch.Tensor) and ids.ndim == 2 and ids.dtype == torch.int64 and 0 not in ids.shape


def _with_mask(of: torch.Tensor, mask: Any) -> tuple[torch.Tensor, torch.Tensor] | Miss:
    """Return tokens and their mask; all ones where none is given."""
    if mask is None:
        return of, torch.ones(of.shape, dtype=torch.long, device=of.device)
    if not isinstance(mask, torch.Tensor) or mask.shape != of.shape:
        return Miss("attention_mask", in_words(mask), "a mask of the shape (batch, tokens)")
    return of, mask


def _is_new(cache: Any) -> bool:
    """Whether it is the empty cache that `generate` makes, which nobody else holds."""
    return (
        type(cache) is EncoderDecoderCache
        and type(cache.self_attention_cache) is type(cache.cross_attention_cache) is DynamicCache
        and not cache.self_attention_cache.offloading
        and cache.get_seq_length() == 0
        and not getattr(cache, "_is_user_defined", False)
    )
