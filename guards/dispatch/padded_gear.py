"""A gear for calls whose tensors are smaller than a compiled graph takes: a function around it pads them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from msgspec import Struct

from gearcache.guards.dispatch.stored.variant import StoredGear

Runner = Callable[[list[torch.Tensor]], list[torch.Tensor]]


class PaddedGear(Struct, frozen=True):
    """A gear that takes a call's tensors, and the function that runs it on the graph of another gear."""

    gear: StoredGear
    run: Runner
    #: How many elements the graph gets: of several gears the smallest is taken.
    work: int


class Unfit(Struct, frozen=True):
    """Why a call cannot be padded to a gear."""

    reason: str
    #: Whether other gears tell more: this one is too small, or was not traced to be padded.
    is_minor: bool = False
