"""A gear for calls whose tensors a compiled graph does not take as they are: a function around it adapts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from msgspec import Struct

from gearcache.guards.dispatch.stored.variant import StoredGear, StoredVariant

Runner = Callable[[list[torch.Tensor]], list[torch.Tensor]]


class AdaptedGear(Struct, frozen=True):
    """A gear that takes a call's tensors, and the function that runs it on the graph of another gear."""

    gear: StoredGear
    run: Runner
    #: How many elements the graph gets: of several gears the smallest is taken.
    work: int


class Unfit(Struct, frozen=True):
    """Why a gear cannot be adapted to a call."""

    reason: str
    #: Whether other gears tell more: this one is too small, or was not traced to be adapted.
    is_minor: bool = False


class Adapter(Protocol):
    """Makes a gear for a call's tensors from a gear of a variant."""

    def __call__(
        self, variant: StoredVariant, gear: StoredGear, run: Runner, tensors: Sequence[torch.Tensor], text: str
    ) -> AdaptedGear | Unfit:
        """Return an adapted gear, or why there is none; `text` is its name if its sizes differ from those of `gear`.

        `run` is the gear's own runner. The tensors are compared with the adapted gear afterwards.
        """
        ...
