"""The cache of one generation: slots that graphs write, which transformers sees as a cache that grows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

#: Heads, size of a key's head and of a value's, of each layer.
LayerShapes = list[tuple[int, int, int]]


class Slots:
    """Static keys and values of a batch of a gear; `rows` of its rows and `length` of its slots are in use."""

    def __init__(
        self, shapes: LayerShapes, batch: int, rows: int, slots: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.batch, self.rows, self.slots, self.length = batch, rows, slots, 0
        # Tensors of inference mode could not be written in a later call outside of it. Zeros: hidden slots have the
        # weight 0, and what else lies there could be a NaN.
        with torch.inference_mode(False):
            self.keys, self.values = (
                [torch.zeros(batch, shape[0], slots, shape[part], dtype=dtype, device=device) for shape in shapes]
                for part in (1, 2)
            )


class SlotView(DynamicLayer):  # type: ignore[misc]
    """One layer of slots as a layer that grows: whoever sets keys or values (`update`, `crop`) has its own tensors."""

    def __init__(self, slots: Slots, index: int) -> None:
        self._slots, self._index = slots, index
        self.share()
        self.dtype, self.device = slots.keys[index].dtype, slots.keys[index].device
        self.is_initialized = True

    def share(self) -> None:
        """Show what is in the slots."""
        self._own: dict[str, Any] = {}

    @property
    def is_shared(self) -> bool:
        """Whether the slots hold what this layer holds."""
        return not self._own

    def _get(self, name: str) -> Any:
        if name in self._own:
            return self._own[name]
        slots = self._slots
        return getattr(slots, name)[self._index][: slots.rows, :, : slots.length]

    def _set(self, name: str, value: Any) -> None:
        self._own[name] = value

    keys: Any = property(lambda self: self._get("keys"), lambda self, value: self._set("keys", value))
    values: Any = property(lambda self: self._get("values"), lambda self, value: self._set("values", value))

    def get_seq_length(self) -> int:
        """Return how many tokens the layer holds."""
        return self._slots.length if self.is_shared else super().get_seq_length()


class SequenceCache(DynamicCache):  # type: ignore[misc]
    """The cache of one generation. transformers may read, crop, reorder and extend it as any `DynamicCache`."""

    def __init__(self, slots: Slots, owner: str) -> None:
        super().__init__()
        #: Names the attachment whose graphs may write the slots.
        self.owner = owner
        self.use(slots)

    def use(self, slots: Slots) -> None:
        """Hold what is in these slots, and nothing else."""
        self.slots = slots
        self.layers = [SlotView(slots, index) for index in range(len(slots.keys))]

    @property
    def is_shared(self) -> bool:
        """Whether the slots hold what the layers hold."""
        return all(layer.is_shared for layer in self.layers)

    @property
    def rows(self) -> int | None:
        """The size of the batch; None where the layers do not hold one batch with one length, as slots do."""
        sizes = set()
        for layer in self.layers:
            for tensor in (layer.keys, layer.values):
                if not isinstance(tensor, torch.Tensor) or tensor.ndim != 4:
                    return None
                sizes.add((tensor.shape[0], tensor.shape[2]))
        return sizes.pop()[0] if len(sizes) == 1 and len(self.layers) == len(self.slots.keys) else None

    def write_back(self, new_slots: Callable[[], Slots]) -> None:
        """Copy what the layers hold into the slots, or into new ones where it does not fit or lies in them."""
        contents = [(layer.keys, layer.values) for layer in self.layers]
        rows, length = contents[0][0].shape[0], contents[0][0].shape[2]
        slots = self.slots
        held = {tensor.untyped_storage().data_ptr() for tensor in (*slots.keys, *slots.values)}
        lies_there = any(tensor.untyped_storage().data_ptr() in held for pair in contents for tensor in pair)
        if lies_there or rows > slots.batch:
            slots = new_slots()
        for index, pair in enumerate(contents):
            slots.keys[index][:rows, :, :length] = pair[0]
            slots.values[index][:rows, :, :length] = pair[1]
        slots.rows, slots.length = rows, length
        self.use(slots)
