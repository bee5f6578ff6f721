"""Serves the calls of a causal language model: prompts in pieces, then token after token."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers.modeling_outputs import CausalLMOutputWithPast

from gearcache.integrations.transformers.decoder import CausalDecoder
from gearcache.integrations.transformers.filling import filled, filled_mask, geared
from gearcache.integrations.transformers.model_call import Miss, ModelCall, read_call
from gearcache.integrations.transformers.pieces import pieces
from gearcache.integrations.transformers.sequence_cache import SequenceCache, Slots
from gearcache.integrations.transformers.sizes import Sizes
from gearcache.integrations.transformers.support import layer_shapes
from gearcache.serving.method import CachedMethod
from gearcache.serving.parameters import Parameters


class CausalReader:
    """Reads tokens into the slots of a generation's cache, with two cached methods."""

    def __init__(self, model: Any, sizes: Sizes, parameters: Parameters) -> None:
        self._model, self._sizes = model, sizes
        self._owner = uuid.uuid4().hex
        #: Modules within the model whose calls are served too.
        self.inner: dict[Any, Callable[..., Any]] = {}
        decoder = CausalDecoder(model)
        widths: Sequence[int] = [width for width in sizes.prompt if width > 1]
        self.methods: dict[str, CachedMethod] = {}
        if widths:
            self.methods["prefill"] = geared(decoder.prefill, "input_ids", sizes.batch, widths, parameters)
        self.methods["decode"] = geared(decoder.decode, "input_ids", sizes.batch, None, parameters)

    def warm(self) -> None:
        """Compile and load every gear."""
        rows, device = self._sizes.batch[-1], self._model.device
        slots = self._new_slots(rows, rows)
        for width in {1, self._sizes.prompt[-1]}:
            ids = torch.zeros(rows, width, dtype=torch.long, device=device)
            self._method(width).warm(**_arguments(slots, ids, self._mask(None, rows, rows), ids.clone(), width))

    def serve(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the model returns for a call of it, or a `Miss`."""
        call = read_call(args, kwargs, self._owner)
        if isinstance(call, Miss):
            return call
        return self._sizes.no_room(call.rows, call.past + call.tokens) or self._read(call)

    def _read(self, call: ModelCall) -> Any:
        """Read the tokens of a call into its cache; returns the logits of the last one and the cache."""
        slots = self._slots_of(call)
        cache = call.cache or SequenceCache(slots, self._owner)
        mask = self._mask(call.attention_mask, call.rows, slots.batch)
        ids, positions = call.input_ids, call.position_ids
        if positions is None:
            positions = torch.arange(slots.length, slots.length + call.tokens, device=ids.device)[None]
        positions = positions.expand(call.rows, -1)
        logits: Any = None
        begin = 0
        for count, width in pieces(call.tokens, slots.length, self._sizes.prompt, slots.slots):
            part = slice(begin, begin + count)
            full = [filled(tensor[:, part], slots.batch, width) for tensor in (ids, positions)]
            logits = self._method(width)(**_arguments(slots, full[0], mask, full[1], count))
            slots.length += count
            begin += count
        return CausalLMOutputWithPast(logits=logits[: call.rows], past_key_values=cache)

    def _method(self, width: int) -> CachedMethod:
        return self.methods["decode" if width == 1 else "prefill"]

    def _slots_of(self, call: ModelCall) -> Slots:
        """Return slots that hold what the cache of a call holds."""
        batch = self._sizes.batch_of(call.rows)
        if call.cache is None:
            return self._new_slots(batch, call.rows)
        if not call.cache.is_shared:  # transformers has cropped or reordered it, or the plain model has extended it
            call.cache.write_back(lambda: self._new_slots(batch, call.rows))
        return call.cache.slots

    def _new_slots(self, batch: int, rows: int) -> Slots:
        model = self._model
        return Slots(layer_shapes(model), batch, rows, self._sizes.cache_length, model.dtype, model.device)

    def _mask(self, given: torch.Tensor | None, rows: int, batch: int) -> torch.Tensor:
        """Return a mask of all slots; the slots of tokens to come are hidden from those before them by causality."""
        if given is None:
            return torch.ones(batch, self._sizes.cache_length, dtype=torch.long, device=self._model.device)
        return filled_mask(given, batch, self._sizes.cache_length)


def _arguments(
    slots: Slots, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, count: int
) -> dict[str, Any]:
    """Return the arguments of prefill or decode for tokens of which the first `count` are no filling."""
    width, device = ids.shape[1], ids.device
    found = {
        "input_ids": ids,
        "attention_mask": mask,
        "position_ids": positions,
        "slots": torch.arange(slots.length, slots.length + width, device=device),
        "keys": slots.keys,
        "values": slots.values,
    }
    return found if width == 1 else {**found, "last": torch.full((1,), count - 1, device=device)}
