"""Cuts a prompt into pieces that prefill graphs take."""

from __future__ import annotations

from collections.abc import Sequence


def pieces(tokens: int, past: int, gears: Sequence[int], slots: int) -> list[tuple[int, int]]:
    """Return (tokens, width) of each piece of a prompt after `past` tokens; a piece is filled up to its width.

    `gears` are the widths of the prefill graphs, ascending; a width of 1 is the decode graph. Filling takes slots
    that later tokens overwrite, so no piece may reach beyond the last slot. `past + tokens` must be at most `slots`.
    """
    cuts = []
    while tokens:
        widths = (gear for gear in gears if gear >= tokens and past + gear <= slots)
        width = 1 if tokens == 1 else next(widths, None) or max((gear for gear in gears if gear <= tokens), default=1)
        count = min(tokens, width)
        cuts.append((count, width))
        past, tokens = past + count, tokens - count
    return cuts
