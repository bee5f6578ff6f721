"""Serves the calls of an encoder-decoder: the encoder for a whole prompt, then token after token."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from gearcache.integrations.transformers.filling import filled, filled_mask, geared
from gearcache.integrations.transformers.model_call import Miss
from gearcache.integrations.transformers.seq2seq_call import (
    Seq2SeqCall,
    SequencePair,
    read_encoder_call,
    read_seq2seq_call,
)
from gearcache.integrations.transformers.seq2seq_decoder import Seq2SeqDecoder
from gearcache.integrations.transformers.sequence_cache import SequenceCache, Slots
from gearcache.integrations.transformers.sizes import Sizes
from gearcache.integrations.transformers.support import layer_shapes
from gearcache.serving.method import CachedMethod
from gearcache.serving.parameters import Parameters


class Seq2SeqReader:
    """Encodes prompts and reads tokens into the slots of a generation's caches, with three cached methods."""

    def __init__(self, model: Any, sizes: Sizes, parameters: Parameters) -> None:
        self._model, self._sizes = model, sizes
        self._owner = uuid.uuid4().hex
        decoder = Seq2SeqDecoder(model)
        gears = sizes.batch, sizes.prompt, parameters
        self.methods: dict[str, CachedMethod] = {
            "encode": geared(decoder.encode, "input_ids", *gears),
            "begin": geared(decoder.begin, "attention_mask", *gears),
            "decode": geared(decoder.decode, "attention_mask", *gears),
        }
        #: Modules within the model whose calls are served too.
        self.inner: dict[Any, Callable[..., Any]] = {model.get_encoder(): self.serve_encoder}

    def warm(self) -> None:
        """Compile and load every gear."""
        rows, width, device = self._sizes.batch[-1], self._sizes.prompt[-1], self._model.device
        ids = torch.zeros(rows, width, dtype=torch.long, device=device)
        mask = torch.ones_like(ids)
        self.methods["encode"].warm(input_ids=ids, attention_mask=mask)
        size = self._model.config.hidden_size
        hidden = torch.zeros(rows, width, size, dtype=self._model.dtype, device=device)
        caches = self._new_slots(rows, rows, self._sizes.cache_length), self._new_slots(rows, rows, width)
        self.methods["begin"].warm(**_arguments(*caches, ids[:, :1].clone(), mask), hidden_states=hidden)
        self.methods["decode"].warm(**_arguments(*caches, ids[:, :1].clone(), mask))

    def serve_encoder(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the encoder returns for a call of it, or a `Miss`."""
        call = read_encoder_call(args, kwargs)
        if isinstance(call, Miss):
            return call
        ids, mask = call
        rows, tokens = ids.shape
        miss = self._no_room(rows, tokens)
        if miss is not None:
            return miss
        batch, width = self._sizes.batch_of(rows), self._sizes.prompt_of(tokens)
        found = self.methods["encode"](
            input_ids=filled(ids, batch, width), attention_mask=filled_mask(mask, batch, width)
        )
        return BaseModelOutput(last_hidden_state=found[:rows, :tokens])

    def serve(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the model returns for a call of it, or a `Miss`."""
        call = read_seq2seq_call(args, kwargs, self._owner)
        if isinstance(call, Miss):
            return call
        miss = self._no_room(call.rows, call.hidden_states.shape[1])
        return miss or self._sizes.too_long(call.past + call.input_ids.shape[1]) or self._read(call)

    def _no_room(self, rows: int, tokens: int) -> Miss | None:
        if tokens > self._sizes.prompt[-1]:
            return Miss("input_ids", f"{tokens} tokens long", f"up to {self._sizes.prompt[-1]} tokens (prompt=)")
        return self._sizes.no_room(rows, 0)

    def _read(self, call: Seq2SeqCall) -> Any:
        tokens = call.hidden_states.shape[1]
        own, encoded = self._slots_of(call, tokens)
        mask = filled_mask(call.attention_mask, own.batch, encoded.slots)
        logits: Any = None
        for column in torch.split(call.input_ids, 1, 1):
            arguments = _arguments(own, encoded, filled(column, own.batch, 1), mask)
            if own.length == 0:
                hidden = call.hidden_states
                arguments["hidden_states"] = hidden.new_zeros(own.batch, encoded.slots, hidden.shape[2])
                arguments["hidden_states"][: call.rows, :tokens] = hidden
                logits = self.methods["begin"](**arguments)
                encoded.length = tokens
            else:
                logits = self.methods["decode"](**arguments)
            own.length += 1
        cache = call.cache or SequencePair(SequenceCache(own, self._owner), SequenceCache(encoded, self._owner))
        return Seq2SeqLMOutput(logits=logits[: call.rows], past_key_values=cache)

    def _slots_of(self, call: Seq2SeqCall, tokens: int) -> tuple[Slots, Slots]:
        """Return slots of the decoder's and the encoder's tokens that hold what the cache of a call holds."""
        batch, width = self._sizes.batch_of(call.rows), self._sizes.prompt_of(tokens)
        lengths = self._sizes.cache_length, width
        if call.cache is None:
            return self._new_slots(batch, call.rows, lengths[0]), self._new_slots(batch, call.rows, lengths[1])
        for cache, length in zip(call.cache.caches, lengths, strict=True):
            if not cache.is_shared:  # transformers has cropped or reordered it, or the plain model has extended it
                cache.write_back(lambda length=length: self._new_slots(batch, call.rows, length))  # type: ignore[misc]
        own, encoded = call.cache.caches
        return own.slots, encoded.slots

    def _new_slots(self, batch: int, rows: int, slots: int) -> Slots:
        model = self._model
        return Slots(layer_shapes(model), batch, rows, slots, model.dtype, model.device)


def _arguments(own: Slots, encoded: Slots, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
    return {
        "decoder_input_ids": ids,
        "attention_mask": mask,
        "slots": torch.full((1,), own.length, dtype=torch.long, device=ids.device),
        "keys": own.keys,
        "values": own.values,
        "encoded_keys": encoded.keys,
        "encoded_values": encoded.values,
    }
