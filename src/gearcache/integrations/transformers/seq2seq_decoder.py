"""Defines the compiled modules of an encoder-decoder: the encoder, and a decoder that reads tokens into slots."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Cache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from gearcache.integrations.transformers.decoder import SlotLayer
from gearcache.integrations.transformers.support import CACHE


class EncodedLayer(SlotLayer):
    """Keys and values of the encoder's tokens, inside a graph; the first token writes them once."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, *, is_read: bool) -> None:
        if keys.shape[2] != values.shape[2]:  # attention does not compare them, so this ties them in the trace
            raise ValueError(f"{keys.shape[2]} keys and {values.shape[2]} values")
        self.keys, self.values, self.is_read = keys, values, is_read
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write all keys and values."""
        self.check(key_states, value_states)
        self.keys.copy_(key_states)
        self.values.copy_(value_states)
        return self.keys, self.values

    def _takes(self, states: torch.Tensor, slots: torch.Tensor) -> bool:
        """Require all at once: `copy_` would broadcast a smaller tensor."""
        return states.shape == slots.shape

    def get_seq_length(self) -> int:
        """Return how many tokens of the encoder are there: all or none."""
        return self.keys.shape[2] if self.is_read else 0


class Seq2SeqDecoder(torch.nn.Module):
    """An encoder-decoder over slots. Both methods of the decoder return logits of shape (batch, 1, vocabulary).

    - `decoder_input_ids`: int64 (batch, 1); `attention_mask`: int64 (batch, encoder tokens), 0 hides one.
    - `slots`: int64 (1,): where the keys and values of the token go.
    - `keys`, `values`: for each layer (batch, heads, slots, head size); written in place. `encoded_keys`,
      `encoded_values`: the same for the encoder's tokens; `begin` writes them.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.training = False  # has no effect here: each inner module has its own

    def encode(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the hidden states of the encoder, (batch, encoder tokens, size)."""
        model: Any = self.model
        output = model.get_encoder().forward(input_ids=input_ids, attention_mask=attention_mask, return_dict=True)
        return output.last_hidden_state  # type: ignore[no-any-return]

    def begin(
        self,
        decoder_input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        hidden_states: torch.Tensor,
        slots: torch.Tensor,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
        encoded_keys: list[torch.Tensor],
        encoded_values: list[torch.Tensor],
    ) -> torch.Tensor:
        """Read the first token and the encoder's output."""
        pairs = zip(encoded_keys, encoded_values, strict=True)
        encoded = Cache(layers=[EncodedLayer(key, value, is_read=False) for key, value in pairs])
        return self._read(decoder_input_ids, attention_mask, hidden_states, slots, keys, values, encoded)

    def decode(
        self,
        decoder_input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        slots: torch.Tensor,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
        encoded_keys: list[torch.Tensor],
        encoded_values: list[torch.Tensor],
    ) -> torch.Tensor:
        """Read one more token of each row."""
        pairs = zip(encoded_keys, encoded_values, strict=True)
        encoded = Cache(layers=[EncodedLayer(key, value, is_read=True) for key, value in pairs])
        # The model asks only for their sizes: the keys and values are already there.
        hidden_states = keys[0].new_empty(*attention_mask.shape, 1)
        return self._read(decoder_input_ids, attention_mask, hidden_states, slots, keys, values, encoded)

    def _read(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        hidden_states: torch.Tensor,
        slots: torch.Tensor,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
        encoded: Any,
    ) -> torch.Tensor:
        own = Cache(layers=[SlotLayer(key, value, slots) for key, value in zip(keys, values, strict=True)])
        call: Any = self.model.forward
        output = call(
            decoder_input_ids=ids,
            attention_mask=mask,
            encoder_outputs=BaseModelOutput(last_hidden_state=hidden_states),
            **{CACHE: EncoderDecoderCache(own, encoded)},
            use_cache=True,
            return_dict=True,
        )
        return output.logits  # type: ignore[no-any-return]
