"""The static facts of one tensor of a gear."""

from __future__ import annotations

from typing import Any

import torch
from msgspec import Struct

Sizes = tuple[Any, ...]


class GearInput(Struct, frozen=True):
    """Sizes and strides of one input of a gear (ints; `None` marks a dynamic dim), dtype and device."""

    sizes: Sizes
    strides: Sizes
    dtype: torch.dtype
    device: torch.device
