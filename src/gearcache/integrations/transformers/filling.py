"""Fills batches and prompts up to a gear, and makes the cached methods that take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from msgspec.structs import replace

from gearcache.guards.gears.symbol import Symbol
from gearcache.serving.call.method import CachedMethod
from gearcache.serving.call.parameters import Parameters


def filled(tensor: torch.Tensor, batch: int, width: int) -> torch.Tensor:
    """Fill up with copies of the last row and of the last token of each row, which are ordinary values for a model."""
    rows, tokens = tensor.shape
    if rows < batch:
        tensor = torch.cat([tensor, tensor[-1:].expand(batch - rows, -1)])
    if tokens < width:
        tensor = torch.cat([tensor, tensor[:, -1:].expand(-1, width - tokens)], 1)
    return tensor.clone(memory_format=torch.contiguous_format)  # `contiguous` returns a row of a longer one unchanged


def filled_mask(short_mask: torch.Tensor, batch: int, width: int, device: torch.device) -> torch.Tensor:
    """Return int64 (batch, width): the given mask, its last row repeated for more rows, and 0 in more columns."""
    rows, tokens = short_mask.shape
    mask = torch.zeros(batch, width, dtype=torch.long, device=device)
    mask[:rows, :tokens] = short_mask
    mask[rows:, :tokens] = short_mask[-1:]
    return mask


def geared(
    method: Any, name: str, batch: Sequence[int], widths: Sequence[int] | None, parameters: Parameters
) -> CachedMethod:
    """Return a cached method with gears for the rows, and the tokens, of one argument: all others follow it."""
    dims: dict[int, Any] = {0: Symbol("batch", gears=list(batch))}
    if widths is not None:
        dims[1] = Symbol("tokens", gears=list(widths))
    return CachedMethod(method, replace(parameters, gears={name: dims}))
