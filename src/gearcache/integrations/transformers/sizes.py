"""The sizes that the graphs of one attached model take, and how batches and prompts are filled up to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace

from gearcache.guards.gears.symbol import Symbol
from gearcache.integrations.misses import UnservedCall
from gearcache.serving.call.method import CachedMethod
from gearcache.serving.call.parameters import Parameters


class Sizes(Struct, frozen=True):
    """Sizes of batches and lengths of prompts, ascending, and the number of tokens that a cache holds."""

    batch: tuple[int, ...]
    prompt: tuple[int, ...]
    cache_length: int

    def __str__(self) -> str:
        return f"batch={list(self.batch)}, prompt={list(self.prompt)}, cache_length={self.cache_length}"

    def batch_of(self, rows: int) -> int:
        """Return the size that a batch is filled up to."""
        return next(size for size in self.batch if size >= rows)

    def prompt_of(self, tokens: int) -> int:
        """Return the length that a prompt is filled up to, unless it is read in pieces."""
        return next(size for size in self.prompt if size >= tokens)

    def no_room(self, rows: int, tokens: int) -> UnservedCall | None:
        """Return why a batch of this many tokens does not fit; None if it does."""
        if rows > self.batch[-1]:
            return UnservedCall("input_ids", f"a batch of {rows}", f"batches up to {self.batch[-1]} (batch=)")
        return self.too_long(tokens)

    def too_long(self, tokens: int) -> UnservedCall | None:
        """Return why this many tokens do not fit into the cache; None if they do."""
        if tokens <= self.cache_length:
            return None
        allowed = f"up to {self.cache_length} tokens in the cache (cache_length=)"
        return UnservedCall("max_length", f"{tokens} tokens or more", allowed)

    def pieces(self, tokens: int, past: int) -> list[tuple[int, int]]:
        """Return (tokens, width) of each piece of a prompt after `past` tokens; a piece is filled up to its width.

        A width of 1 is the decode graph. Filling takes slots that later tokens overwrite, so no piece may reach beyond
        the last slot. `past + tokens` must be at most `cache_length`.
        """
        cuts = []
        while tokens:
            fitting = (gear for gear in self.prompt if gear >= tokens and past + gear <= self.cache_length)
            smaller = (gear for gear in self.prompt if gear <= tokens)
            width = 1 if tokens == 1 else next(fitting, None) or max(smaller, default=1)
            count = min(tokens, width)
            cuts.append((count, width))
            past, tokens = past + count, tokens - count
        return cuts


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
