"""The cache of one generation: graphs write its slots, and transformers sees a cache that grows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from transformers import DynamicCache

from gearcache.integrations.transformers.slots import Form, Slots, SlotView, copy_into


class OpenSlots(NamedTuple):
    """Keys and values of all layers that a graph may write, from the slot `begin` on."""

    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    begin: int


class SequenceCache(DynamicCache):  # type: ignore[misc]
    """The cache of one generation. transformers may read, crop, reorder and extend it as any `DynamicCache`."""

    def __init__(self, forms: list[Form], owner: str, batch: int, rows: int) -> None:
        """`batch` is the batch size of a gear; the first `rows` of it are in use."""
        super().__init__()
        #: Names the attachment whose graphs may write the slots.
        self.owner = owner
        #: The form of the slots of each layer.
        self.forms = forms
        self.layers = [SlotView(Slots(form, batch), rows) for form in forms]

    @property
    def rows(self) -> int | None:
        """The size of the batch; None if slots cannot hold the content of the layers: one batch with one length."""
        layers = self.layers
        if len({id(layer) for layer in layers}) != len(self.forms) or len(layers) != len(self.forms):
            return None
        if not all(isinstance(layer, SlotView) for layer in layers):
            return None
        sizes = {layer.sizes(form) for layer, form in zip(layers, self.forms, strict=True)}
        size = sizes.pop() if len(sizes) == 1 else None
        return None if size is None else size[0]

    def suits(self, dtype: torch.dtype, device: torch.device) -> bool:
        """Whether a model with this dtype and device can continue with the slots: it may have been cast or moved."""
        return (self.forms[0].dtype, self.forms[0].device) == (dtype, device)

    def open(self, batch: int, tokens: int) -> OpenSlots:
        """Make the slots of a batch of this size hold the layers' content; the next `tokens` slots may be written.

        Written slots count only after `advance`; a failure before it leaves the layers unchanged.
        """
        layers = self.layers
        rows, length = layers[0].sizes(self.forms[0])  # type: ignore[misc]  # `rows` was asked before
        slots = [layer.slots for layer in layers]
        fits = all(
            layer_slots.batch == batch and layer_slots.form == form
            for layer_slots, form in zip(slots, self.forms, strict=True)
        )
        if not fits or not self._claims(slots, length, tokens):
            # transformers has cropped or reordered it, the plain model has extended it, or a copy of it was continued.
            if not fits or any(layer.is_shared or layer.slots.is_seen for layer in layers):
                slots = [Slots(form, batch) for form in self.forms]
            copy_into(slots, layers, rows, length)
            self._claims(slots, length, tokens)
        return OpenSlots(
            [layer_slots.keys for layer_slots in slots], [layer_slots.values for layer_slots in slots], length
        )

    def _claims(self, slots: list[Slots], length: int, tokens: int) -> bool:
        if not all(layer.is_shared for layer in self.layers):
            return False
        return all(layer_slots.claim(length, length + tokens) for layer_slots in slots)

    def advance(self, tokens: int) -> None:
        """Add this many tokens, which were written."""
        for layer in self.layers:
            layer.show(layer.slots, layer.slot_rows, layer.slot_length + tokens)
