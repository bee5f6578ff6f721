"""Stretches of a graph that come again one after the other, as the layers of a model do.

They are found by what they do: operators, sizes, strides, dtypes and constants, and how they are wired. Names and
modules play no part. A search over all lengths takes milliseconds: what each operation does is one number, and numbers
are compared at a distance.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from gearcache.ge_cache.graphs.operations import Operations
from gearcache.ge_cache.graphs.stretch import Stretch

#: A repeat that saves fewer operations than this costs more in parts than it saves.
_WORTH = 32


def stretches(operations: Operations) -> list[Stretch]:
    """Return the whole graph in order as stretches; one of them, with a count of 1, where nothing repeats."""
    numbers: dict[object, int] = {}
    tokens = torch.tensor([numbers.setdefault(token, len(numbers)) for token in operations.tokens()])
    return list(_split(operations, tokens, 0, len(tokens)))


def _split(operations: Operations, tokens: torch.Tensor, begin: int, end: int) -> Iterator[Stretch]:
    found = _best(operations, tokens, begin, end)
    if found is None:
        if begin < end:
            yield Stretch(begin, end - begin)
        return
    yield from _split(operations, tokens, begin, found.start)
    yield found
    yield from _split(operations, tokens, found.end, end)


def _best(operations: Operations, tokens: torch.Tensor, begin: int, end: int) -> Stretch | None:
    """Return what saves most among the stretches of a range that may be cut out."""
    candidates = []
    for length in range(2, (end - begin) // 2 + 1):
        for start, size in _runs(tokens[begin:end], length):
            count = size // length
            if (count - 1) * length >= _WORTH:
                candidates.append(((count - 1) * length, -length, begin + start, size))
    for _, negative, start, size in sorted(candidates, reverse=True):
        if (found := _rotated(operations, start, -negative, size)) is not None:
            return found
    return None


def _runs(tokens: torch.Tensor, length: int) -> Iterator[tuple[int, int]]:
    """Yield start and size of what is equal to itself `length` operations later, that end included."""
    differs = (tokens[:-length] != tokens[length:]).nonzero().flatten().tolist()
    start = 0
    for stop in [*differs, len(tokens) - length]:
        if stop - start >= length:
            yield start, stop - start + length
        start = stop + 1


def _rotated(operations: Operations, start: int, length: int, size: int) -> Stretch | None:
    """Return the stretch that begins where fewest tensors, then fewest bytes, are alive between repeats."""
    found: tuple[tuple[int, int, int], Stretch] | None = None
    for shift in range(min(length, size - 2 * length + 1)):
        stretch = Stretch(start + shift, length, (size - shift) // length)
        if (stretch.count - 1) * length < _WORTH or not _is_wired_alike(operations, stretch):
            continue
        alive = operations.alive_after(stretch)
        if alive is None:
            continue
        cost = (-stretch.count, len(alive), sum(map(operations.bytes_of, alive)))
        if found is None or cost < found[0]:
            found = cost, stretch
    return found[1] if found is not None else None


def _is_wired_alike(operations: Operations, stretch: Stretch) -> bool:
    begins = stretch.begins()
    first = operations.wiring(next(begins), stretch.length)
    return all(operations.wiring(begin, stretch.length) == first for begin in begins)


def outputs_of(operations: Operations, stretch: Stretch) -> list[int]:
    """Return which operations of a repeat, counted from its first one, any repeat hands on."""
    handed = set()
    for begin in stretch.begins():
        for offset in range(stretch.length):
            if operations.is_used_outside(begin + offset, begin, begin + stretch.length):
                handed.add(offset)
    return sorted(handed)


def externals_of(operations: Operations, begin: int, length: int) -> list[fx.Node]:
    """Return what the operations take from elsewhere, in the order of its first use."""
    seen: dict[fx.Node, None] = {}
    for node in operations.calls[begin : begin + length]:
        for used in node.all_input_nodes:
            if not begin <= operations.number.get(used, -1) < begin + length:
                seen[used] = None
    return list(seen)
