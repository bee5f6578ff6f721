"""The slots of one layer, which graphs write, and a growing cache layer over them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from msgspec import Struct
from transformers.cache_utils import DynamicLayer

from gearcache.threads import freed_in_forks

#: Number of heads, size of a key's head and of a value's head, for each layer.
LayerShapes = list[tuple[int, int, int]]
_claims = freed_in_forks(threading.Lock())


class Form(Struct, frozen=True):
    """The properties that all slots of one layer share: heads, head sizes of keys and values, and their number."""

    heads: int
    key_size: int
    value_size: int
    length: int
    dtype: torch.dtype
    device: torch.device


def forms_of(shapes: LayerShapes, length: int, model: Any) -> list[Form]:
    """Return the form of the slots of each layer of a model."""
    return [Form(*shape, length, model.dtype, model.device) for shape in shapes]


class Slots:
    """Static keys and values of one layer and a batch of a gear.

    Written slots never change: if a second layer continues from the same point as another, it gets its own slots. So
    copies of a layer, and tensors that were taken from one, keep their values, as with transformers' own layers.
    """

    def __init__(self, form: Form, batch: int) -> None:
        self.form, self.batch = form, batch
        #: How many slots belong to some layer.
        self.written = 0
        #: Whether anything besides one layer may refer to the content of the slots; then none of it may change.
        self.is_seen = False
        # Inference tensors could not be written by a later call outside inference mode. Zeros, because hidden slots
        # have the weight 0, and uninitialised memory could hold a NaN.
        with torch.inference_mode(False):
            self.keys, self.values = (
                torch.zeros(batch, form.heads, form.length, size, dtype=form.dtype, device=form.device)
                for size in (form.key_size, form.value_size)
            )

    def claim(self, begin: int, end: int) -> bool:
        """Reserve these slots for one layer; returns False if another layer has them."""
        with _claims:
            if self.written != begin:
                return False
            self.written = end
            return True


class SlotView(DynamicLayer):  # type: ignore[misc]
    """The first slots of one layer as a growing layer; setting keys or values gives the layer its own tensors.

    It only changes by assigning new attribute values, so a shallow copy is independent.
    """

    def __init__(self, slots: Slots, rows: int) -> None:
        self.show(slots, rows, 0)
        self.dtype, self.device = slots.form.dtype, slots.form.device
        self.is_initialized = True

    def show(self, slots: Slots, rows: int, length: int) -> None:
        """Refer to the first `length` slots of the first `rows`."""
        self.slots, self.slot_rows, self.slot_length = slots, rows, length
        self._own_tensors: dict[str, Any] = {}

    def __copy__(self) -> SlotView:
        self.slots.is_seen = True
        copied = type(self).__new__(type(self))
        copied.__dict__.update(vars(self))
        return copied

    @property
    def is_shared(self) -> bool:
        """Whether the content of this layer is in the slots."""
        return not self._own_tensors

    def held(self, name: str) -> Any:
        """Return keys or values for temporary use: the caller must not keep them."""
        if name in self._own_tensors:
            return self._own_tensors[name]
        return getattr(self.slots, name)[: self.slot_rows, :, : self.slot_length]

    def _get(self, name: str) -> Any:
        if name not in self._own_tensors:
            self.slots.is_seen = True
        return self.held(name)

    def _set(self, name: str, value: Any) -> None:
        self._own_tensors = {**self._own_tensors, name: value}

    keys: Any = property(lambda self: self._get("keys"), lambda self, value: self._set("keys", value))
    values: Any = property(lambda self: self._get("values"), lambda self, value: self._set("values", value))

    def get_seq_length(self) -> int:
        """Return how many tokens the layer holds."""
        return self.slot_length if self.is_shared else super().get_seq_length()

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Select other rows, at each step of beam search: copies, so slots are rewritten instead of allocated."""
        if self.get_seq_length() > 0:
            for name in ("keys", "values"):
                self._set(name, self.held(name).index_select(0, beam_idx.to(self.device)))

    def sizes(self, form: Form) -> tuple[int, int] | None:
        """Return rows and length; None if slots of this form cannot hold the layer's content."""
        if self.is_shared:
            return (self.slot_rows, self.slot_length) if self.slots.form == form else None
        shapes = set()
        for name, size in (("keys", form.key_size), ("values", form.value_size)):
            tensor = self.held(name)
            if not isinstance(tensor, torch.Tensor) or tensor.ndim != 4:
                return None
            if (tensor.dtype, tensor.device) != (form.dtype, form.device):
                return None
            if (tensor.shape[1], tensor.shape[3]) != (form.heads, size):
                return None
            shapes.add((tensor.shape[0], tensor.shape[2]))
        return shapes.pop() if len(shapes) == 1 else None


def copy_into(targets: Sequence[Slots], layers: Sequence[SlotView], rows: int, length: int) -> None:
    """Write the content of layers into slots, and make the layers refer to them."""
    for slots, layer in zip(targets, layers, strict=True):
        for name in ("keys", "values"):
            getattr(slots, name)[:rows, :, :length] = layer.held(name)
        slots.written = length
        layer.show(slots, rows, length)
