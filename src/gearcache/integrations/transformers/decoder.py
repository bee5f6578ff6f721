"""Defines the modules that are compiled: a causal language model over the slots of a static cache."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from gearcache.integrations.transformers.support import CACHE


class DoesNotFit(Exception):
    """A layer makes keys or values that do not fit its slots; `args`: the property, its value, and that of the slots.

    Slots have the model's dtype and the sizes given by its config. A layer may cast, or use other sizes.
    """


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """The keys and values of one layer inside a graph: it writes the slots that are given to it.

    A layer with a sliding window has all its slots too: its mask hides the old ones, and a slot is a position.
    """

    is_sliding = False
    #: If False, transformers drops a one-token mask when the method runs without a graph, and hidden slots are seen.
    is_compileable = True

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        self.keys, self.values, self.slots = keys, values, slots
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing: the slots exist already."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values; returns those of all slots."""
        self.check(key_states, value_states)
        self.keys.index_copy_(2, self.slots, key_states)
        self.values.index_copy_(2, self.slots, value_states)
        return self.keys, self.values

    def check(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Raise `DoesNotFit` for tensors that slots would round, broadcast or reject."""
        for states, slots in ((key_states, self.keys), (value_states, self.values)):
            if states.dtype != slots.dtype:
                raise DoesNotFit(
                    "dtype", f"of keys and values {states.dtype}", f"{slots.dtype}, as of the model's weights"
                )
            if states.ndim != 4 or not self._takes(states, slots):
                raise DoesNotFit(
                    "sizes", f"of keys and values {tuple(states.shape)}", f"{tuple(slots.shape)} by the config"
                )

    def _takes(self, states: torch.Tensor, slots: torch.Tensor) -> bool:
        """Whether keys or values, of 4 dims, have the sizes of the slots they are for."""
        batch, heads, tokens, size = states.shape
        return (batch, heads, size) == (*slots.shape[:2], slots.shape[3]) and tokens == self.slots.shape[0]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of slots, and the first one."""
        return self.keys.shape[2], 0

    def get_seq_length(self) -> Any:
        """Return the number of slots in use: a tensor, so that no graph depends on the number."""
        return self.slots[0]

    def get_max_length(self) -> int:
        """Return the number of slots."""
        return self.keys.shape[2]


class CausalDecoder(torch.nn.Module):
    """A causal language model over slots. Both methods return logits of shape (batch, 1, vocabulary).

    - `input_ids`, `position_ids`: int64 (batch, tokens); tokens beyond the prompt repeat its last one.
    - `attention_mask`: int64 (batch, slots); 0 hides a slot that holds the user's own padding.
    - `slots`: int64 (tokens,), one after the other: where the keys and values of the tokens go.
    - `keys`, `values`: for each layer (batch, heads, slots, head size); written in place.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        parameters = inspect.signature(model.forward).parameters
        self._takes_positions = "position_ids" in parameters
        self._takes_logits_to_keep = "logits_to_keep" in parameters
        self.training = False  # has no effect here: each inner module has its own

    def prefill(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        slots: torch.Tensor,
        last: torch.Tensor,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
    ) -> torch.Tensor:
        """Read a piece of the prompts; `last`, int64 (1,), is the index of its last token that is not filling."""
        if self._takes_logits_to_keep:
            return self._read(input_ids, attention_mask, position_ids, slots, keys, values, logits_to_keep=last)
        return self._read(input_ids, attention_mask, position_ids, slots, keys, values).index_select(1, last)

    def decode(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        slots: torch.Tensor,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
    ) -> torch.Tensor:
        """Read one token of each row."""
        return self._read(input_ids, attention_mask, position_ids, slots, keys, values)

    def _read(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        slots: torch.Tensor,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
        **options: Any,
    ) -> torch.Tensor:
        if self._takes_positions:
            options["position_ids"] = position_ids
        options[CACHE] = Cache(layers=[SlotLayer(key, value, slots) for key, value in zip(keys, values, strict=True)])
        # Not `self.model(...)`: the attachment serves that call, and runs the model's hooks.
        call: Any = self.model.forward
        output = call(
            input_ids=input_ids,
            attention_mask=attention_mask,
            use_cache=True,
            return_dict=True,
            **options,
        )
        return output.logits  # type: ignore[no-any-return]
