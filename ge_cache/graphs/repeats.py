"""Find stretches of a graph that repeat one after the other, as the layers of a model do.

Repeats are identified by their effect (operators, sizes, strides, dtypes and constants) and by their wiring. Names and
modules play no part. A search over all lengths takes milliseconds: each operation becomes one number, and numbers are
compared at a distance.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from gearcache.ge_cache.graphs.cuts import Cuts
from gearcache.ge_cache.graphs.operations import Operations
from gearcache.ge_cache.graphs.stretch import Stretch

#: A repeat that saves fewer operations than this costs more as parts than it saves.
_WORTH = 32
#: A step takes about 1.2 µs more than its operations within a whole graph. Moving this many bytes takes 40 µs (measured
#: with layers of 16 to 256 columns), so that is 3 %; a model whose layers move less is compiled as a whole.
LEAST_BYTES = 1 << 19
#: Limit of candidates, both of the stretches that save most and of the places where one may begin.
_TRIED = 12


class Search:
    """Searches for repeated stretches."""

    def __init__(self, operations: Operations) -> None:
        self.operations = operations
        #: Why some repeated stretches were not used; empty where all were.
        self.refused = ""
        self._cuts = Cuts(operations)

    def stretches(self) -> list[Stretch]:
        """Return the whole graph in order as stretches; where nothing repeats, one stretch with a count of 1."""
        numbers: dict[object, int] = {}
        tokens = [numbers.setdefault(token, len(numbers)) for token in self.operations.tokens()]
        return list(self._split(torch.tensor(tokens), 0, len(tokens)))

    def _split(self, tokens: torch.Tensor, begin: int, end: int) -> Iterator[Stretch]:
        stretch = self._best(tokens, begin, end)
        if stretch is None:
            if begin < end:
                yield Stretch(begin, end - begin)
            return
        yield from self._split(tokens, begin, stretch.start)
        yield stretch
        yield from self._split(tokens, stretch.end, end)

    def _best(self, tokens: torch.Tensor, begin: int, end: int) -> Stretch | None:
        """Return the stretch of a range that saves most and may be cut out."""
        candidates = []
        for length in range(2, (end - begin) // 2 + 1):
            for start, size in _runs(tokens[begin:end], length):
                saved = (size // length - 1) * length
                if saved >= _WORTH:
                    candidates.append((saved, -length, begin + start, size))
        for _, negative, start, size in sorted(candidates, reverse=True)[:_TRIED]:
            if (stretch := self._rotated(start, -negative, size)) is not None:
                return stretch
        return None

    def _rotated(self, start: int, length: int, size: int) -> Stretch | None:
        """Return the stretch that begins where the fewest tensors, then fewest bytes, are alive between repeats."""
        if (moved := self.operations.bytes_of(start, length)) < LEAST_BYTES:
            self._refuse(f"{size // length} times {length} operations move {moved} bytes, less than {LEAST_BYTES}")
            return None
        possible = []
        for shift in range(min(length, size - 2 * length + 1)):
            stretch = Stretch(start + shift, length, (size - shift) // length)
            if (stretch.count - 1) * length >= _WORTH and self._cuts.allow(stretch):
                possible.append(((-stretch.count, *self._cuts.alive(stretch.start + length)), stretch.start, stretch))
        for *_, stretch in sorted(possible, key=lambda item: item[:2])[:_TRIED]:
            if _is_wired_alike(self.operations, stretch):
                return stretch
        cause = "are not wired alike" if possible else "share memory that the graph writes"
        self._refuse(f"{size // length} times {length} operations {cause}")
        return None

    def _refuse(self, cause: str) -> None:
        self.refused = self.refused or cause


def _runs(tokens: torch.Tensor, length: int) -> Iterator[tuple[int, int]]:
    """Yield start and size of runs that equal themselves `length` operations later, including the repeated end."""
    differs = (tokens[:-length] != tokens[length:]).nonzero().flatten().tolist()
    start = 0
    for stop in [*differs, len(tokens) - length]:
        if stop - start >= length:
            yield start, stop - start + length
        start = stop + 1


def _is_wired_alike(operations: Operations, stretch: Stretch) -> bool:
    begins = stretch.begins()
    wiring = operations.wiring(next(begins), stretch.length)
    return all(operations.wiring(begin, stretch.length) == wiring for begin in begins)


def outputs_of(operations: Operations, stretch: Stretch) -> list[int]:
    """Return the operations of a repeat, counted from its first one, whose results are used outside it."""
    offsets = set()
    for begin in stretch.begins():
        for offset in range(stretch.length):
            if operations.is_used_outside(begin + offset, begin, begin + stretch.length):
                offsets.add(offset)
    return sorted(offsets)


def externals_of(operations: Operations, begin: int, length: int) -> list[fx.Node]:
    """Return the values that the operations take from outside, in the order of first use."""
    externals: dict[fx.Node, None] = {}
    for node in operations.calls[begin : begin + length]:
        for argument in node.all_input_nodes:
            if not begin <= operations.number.get(argument, -1) < begin + length:
                externals[argument] = None
    return list(externals)
