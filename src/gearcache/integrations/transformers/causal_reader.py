"""Serves the calls of a causal language model: prompts in pieces, then one token at a time."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from msgspec.structs import replace
from transformers.modeling_outputs import CausalLMOutputWithPast

from gearcache.integrations.misses import UnservedCall
from gearcache.integrations.transformers.decoder import CausalDecoder
from gearcache.integrations.transformers.model_call import (
    ModelCall,
    other_weights,
    read_call,
    sees_nothing,
)
from gearcache.integrations.transformers.model_state import ModelState
from gearcache.integrations.transformers.sequence_cache import OpenSlots, SequenceCache
from gearcache.integrations.transformers.sizes import Sizes, filled, filled_mask, geared
from gearcache.integrations.transformers.slots import forms_of
from gearcache.integrations.transformers.support import CACHE, has_windows
from gearcache.serving.call.method import CachedMethod
from gearcache.serving.call.parameters import Parameters


class CausalReader:
    """Reads tokens into the slots of a generation's cache, with two cached methods."""

    def __init__(self, model: Any, state: ModelState, sizes: Sizes, parameters: Parameters) -> None:
        self._model, self._sizes, self._shapes = model, sizes, state.shapes
        parameters = replace(parameters, label=type(model).__name__, apart=state.apart(sizes))
        self._owner = uuid.uuid4().hex
        #: Inner modules of the model whose calls are served too.
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
        slots = self._new_cache(rows, rows).open(rows, 0)
        # Off CPUs transformers runs experts in another way while it decodes, except with beams.
        for width, way in (
            (self._sizes.prompt[-1], nullcontext),
            (1, nullcontext),
            (1, self._model._optimize_model_for_decode),
        ):
            ids = torch.zeros(rows, width, dtype=torch.long, device=device)
            with way():
                self._method(width).warm(**_arguments(slots, 0, ids, self._mask(None, rows, rows), ids.clone(), width))

    def serve(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_hooked: bool = False) -> Any:
        """Return the model's result for a call, or an `UnservedCall`; `is_hooked`: hooks see the result."""
        call = read_call(args, kwargs, self._owner, self._model.device, is_hooked=is_hooked)
        if isinstance(call, UnservedCall):
            return call
        if call.cache is not None and not call.cache.suits(self._model.dtype, self._model.device):
            return other_weights()
        miss = self._sizes.no_room(call.rows, call.past + call.tokens) or self._blind_miss(call.attention_mask)
        return miss or self._read(call)

    def _blind_miss(self, mask: torch.Tensor | None) -> UnservedCall | None:
        """Return an `UnservedCall` for a mask that may hide everything from the last token of a row.

        Other tokens that see nothing are hidden themselves, and their logits are not used.
        """
        if mask is None or mask[:, -1].all():
            return None
        return sees_nothing() if has_windows(self._model) or not mask.any(1).all() else None

    def _read(self, call: ModelCall) -> Any:
        """Read the tokens of a call into its cache; returns the logits of the last one and the cache."""
        batch = self._sizes.batch_of(call.rows)
        cache = call.cache or self._new_cache(batch, call.rows)
        slots = cache.open(batch, call.tokens)
        mask = self._mask(call.attention_mask, call.rows, batch)
        ids, positions = call.input_ids, call.position_ids
        if positions is None:
            positions = torch.arange(slots.begin, slots.begin + call.tokens, device=ids.device)[None]
        positions = positions.expand(call.rows, -1)
        logits: Any = None
        begin = 0
        for count, width in self._sizes.pieces(call.tokens, slots.begin):
            part = slice(begin, begin + count)
            filled_tensors = [filled(tensor[:, part], batch, width) for tensor in (ids, positions)]
            logits = self._method(width)(
                **_arguments(slots, slots.begin + begin, filled_tensors[0], mask, filled_tensors[1], count)
            )
            begin += count
        cache.advance(call.tokens)
        return CausalLMOutputWithPast(logits=logits[: call.rows], **{CACHE: cache})

    def _method(self, width: int) -> CachedMethod:
        return self.methods["decode" if width == 1 else "prefill"]

    def _new_cache(self, batch: int, rows: int) -> SequenceCache:
        forms = forms_of(self._shapes, self._sizes.cache_length, self._model)
        return SequenceCache(forms, self._owner, batch, rows)

    def _mask(self, mask: torch.Tensor | None, rows: int, batch: int) -> torch.Tensor:
        """Return a mask of all slots; causality hides the slots of later tokens from earlier ones."""
        if mask is None:
            return torch.ones(batch, self._sizes.cache_length, dtype=torch.long, device=self._model.device)
        return filled_mask(mask, batch, self._sizes.cache_length, self._model.device)


def _arguments(
    slots: OpenSlots, begin: int, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, count: int
) -> dict[str, Any]:
    """Return the arguments of prefill or decode for tokens whose first `count` are not filling."""
    width, device = ids.shape[1], ids.device
    arguments = {
        "input_ids": ids,
        "attention_mask": mask,
        "position_ids": positions,
        "slots": torch.arange(begin, begin + width, device=device),
        "keys": slots.keys,
        "values": slots.values,
    }
    return arguments if width == 1 else {**arguments, "last": torch.full((1,), count - 1, device=device)}
