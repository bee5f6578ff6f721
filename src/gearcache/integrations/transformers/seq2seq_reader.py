"""Serves the calls of an encoder-decoder: the encoder for a whole prompt, then one token at a time."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import torch
from msgspec.structs import replace
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from gearcache.integrations.misses import UnservedCall
from gearcache.integrations.transformers.model_call import other_weights
from gearcache.integrations.transformers.model_state import ModelState
from gearcache.integrations.transformers.seq2seq_call import (
    Seq2SeqCall,
    SequencePair,
    read_encoder_call,
    read_seq2seq_call,
)
from gearcache.integrations.transformers.seq2seq_decoder import Seq2SeqDecoder
from gearcache.integrations.transformers.sequence_cache import OpenSlots, SequenceCache
from gearcache.integrations.transformers.sizes import Sizes, filled, filled_mask, geared
from gearcache.integrations.transformers.slots import forms_of
from gearcache.integrations.transformers.support import CACHE
from gearcache.serving.call.method import CachedMethod
from gearcache.serving.call.parameters import Parameters


class Seq2SeqReader:
    """Encodes prompts and reads tokens into the slots of a generation's caches, with three cached methods."""

    def __init__(self, model: Any, state: ModelState, sizes: Sizes, parameters: Parameters) -> None:
        self._model, self._sizes, self._shapes = model, sizes, state.shapes
        self._owner = uuid.uuid4().hex
        decoder = Seq2SeqDecoder(model)
        parameters = replace(parameters, label=type(model).__name__)
        gears, own = (sizes.batch, sizes.prompt), replace(parameters, apart=state.apart(sizes))
        self.methods: dict[str, CachedMethod] = {
            "encode": geared(decoder.encode, "input_ids", *gears, parameters),
            "begin": geared(decoder.begin, "attention_mask", *gears, own),
            "decode": geared(decoder.decode, "attention_mask", *gears, own),
        }
        #: Inner modules of the model whose calls are served too.
        self.inner: dict[Any, Callable[..., Any]] = {model.get_encoder(): self.serve_encoder}

    def warm(self) -> None:
        """Compile and load every gear."""
        rows, width, device = self._sizes.batch[-1], self._sizes.prompt[-1], self._model.device
        ids = torch.zeros(rows, width, dtype=torch.long, device=device)
        mask = torch.ones_like(ids)
        self.methods["encode"].warm(input_ids=ids, attention_mask=mask)
        size = self._model.config.hidden_size
        hidden = torch.zeros(rows, width, size, dtype=self._model.dtype, device=device)
        own, encoded = (cache.open(rows, 0) for cache in self._new_caches(rows, rows, width))
        arguments = _arguments(own, 0, encoded, ids[:, :1].clone(), mask)
        self.methods["begin"].warm(**arguments, hidden_states=hidden)
        self.methods["decode"].warm(**arguments)

    def serve_encoder(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_hooked: bool = False) -> Any:
        """Return the encoder's result for a call, or an `UnservedCall`."""
        call = read_encoder_call(args, kwargs, self._model.device)
        if isinstance(call, UnservedCall):
            return call
        ids, mask = call
        rows, tokens = ids.shape
        miss = self._no_room(rows, tokens)
        if miss is not None:
            return miss
        batch, width = self._sizes.batch_of(rows), self._sizes.prompt_of(tokens)
        hidden = self.methods["encode"](
            input_ids=filled(ids, batch, width), attention_mask=filled_mask(mask, batch, width, ids.device)
        )
        return BaseModelOutput(last_hidden_state=hidden[:rows, :tokens])

    def serve(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_hooked: bool = False) -> Any:
        """Return the model's result for a call, or an `UnservedCall`."""
        call = read_seq2seq_call(
            args, kwargs, self._owner, self._model.get_input_embeddings().weight, is_hooked=is_hooked
        )
        if isinstance(call, UnservedCall):
            return call
        if call.cache is not None:
            model = self._model
            if not all(cache.suits(model.dtype, model.device) for cache in call.cache.caches):
                return other_weights()
        miss = self._no_room(call.rows, call.hidden_states.shape[1])
        return miss or self._sizes.too_long(call.past + call.input_ids.shape[1]) or self._read(call)

    def _no_room(self, rows: int, tokens: int) -> UnservedCall | None:
        if tokens > self._sizes.prompt[-1]:
            return UnservedCall(
                "input_ids", f"{tokens} tokens long", f"up to {self._sizes.prompt[-1]} tokens (prompt=)"
            )
        return self._sizes.no_room(rows, 0)

    def _read(self, call: Seq2SeqCall) -> Any:
        tokens = call.hidden_states.shape[1]
        batch, width = self._sizes.batch_of(call.rows), self._sizes.prompt_of(tokens)
        caches = call.cache.caches if call.cache is not None else self._new_caches(batch, call.rows, width)
        unread = tokens if call.cache is None else 0
        own, encoded = caches[0].open(batch, call.input_ids.shape[1]), caches[1].open(batch, unread)
        mask = filled_mask(call.attention_mask, batch, width, call.input_ids.device)
        logits: Any = None
        for place, column in enumerate(torch.split(call.input_ids, 1, 1), own.begin):
            arguments = _arguments(own, place, encoded, filled(column, batch, 1), mask)
            if unread and place == 0:
                hidden = call.hidden_states
                arguments["hidden_states"] = hidden.new_zeros(batch, width, hidden.shape[2])
                arguments["hidden_states"][: call.rows, :tokens] = hidden
                logits = self.methods["begin"](**arguments)
            else:
                logits = self.methods["decode"](**arguments)
        caches[0].advance(call.input_ids.shape[1])
        caches[1].advance(unread)
        cache = call.cache or SequencePair(*caches)
        return Seq2SeqLMOutput(
            logits=logits[: call.rows], encoder_last_hidden_state=call.hidden_states, **{CACHE: cache}
        )

    def _new_caches(self, batch: int, rows: int, width: int) -> tuple[SequenceCache, SequenceCache]:
        """Return caches of the decoder's and of the encoder's tokens."""
        own, encoded = (
            SequenceCache(forms_of(self._shapes, length, self._model), self._owner, batch, rows)
            for length in (self._sizes.cache_length, width)
        )
        return own, encoded


def _arguments(own: OpenSlots, place: int, encoded: OpenSlots, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
    return {
        "decoder_input_ids": ids,
        "attention_mask": mask,
        "slots": torch.full((1,), place, dtype=torch.long, device=ids.device),
        "keys": own.keys,
        "values": own.values,
        "encoded_keys": encoded.keys,
        "encoded_values": encoded.values,
    }
