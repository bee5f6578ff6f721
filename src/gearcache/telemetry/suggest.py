"""Gears learnt from traffic: the sizes that waste the least work on the shapes that were met.

A call is served by the smallest gear that holds it, so its work is the product of the gear's sizes. For one dim the
best `k` sizes are found exactly, by dynamic programming over the sorted sizes. Several independent dims form a
product of lists: while they are few enough, all lists of the other dims are tried, each with the best list for the
last one, which is exact as well; beyond that, one list at a time is made the best for the others until nothing
improves. A dim that always was a multiple of another one, or always larger by the same number, follows it.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gearcache.errors import GearSpecError
from gearcache.guards.gears.sizes import MAX_GEARS
from gearcache.guards.gears.symbol import SizeExpression, Symbol

_MAX_TRIED = 2000
Shape = tuple[int, ...]


@dataclass(frozen=True)
class SuggestedGears:
    """Gears for the shapes that were met; `gears` is what `cache_compile` takes.

    `sizes`: the list of each dim that varies by itself. `work` and `least_work`: rows computed with these gears and
    without padding, over `calls` calls.
    """

    gears: dict[str, dict[int, Any]]
    sizes: dict[str, list[int]]
    calls: int
    work: int
    least_work: int

    @property
    def padded(self) -> float:
        """The share of the work that is padding, from 0 to 1."""
        return 1 - self.least_work / self.work if self.work else 0.0

    def __str__(self) -> str:
        listed = "; ".join(f"{name}: {sizes}" for name, sizes in self.sizes.items())
        return f"{listed} ({self.padded:.1%} of the work of {self.calls} calls is padding)"


def best_sizes(counts: Mapping[int, float], k: int) -> list[int]:
    """Return the at most `k` sizes that minimise the sum of weight times the smallest size that holds each one."""
    sizes = sorted(counts)
    if k >= len(sizes):
        return sizes
    weights = list(itertools.accumulate((counts[size] for size in sizes), initial=0.0))
    # best[j]: the least work for the j smallest sizes, the largest of them being chosen.
    best = [0.0] + [size * weights[j + 1] for j, size in enumerate(sizes)]
    choices: list[list[int]] = []
    for _ in range(k - 1):
        before, chosen = best, [0]
        best = [0.0]
        for j, size in enumerate(sizes, start=1):
            options = [(before[i] + size * (weights[j] - weights[i]), i) for i in range(j)]
            cost, i = min(options)
            best.append(cost)
            chosen.append(i)
        choices.append(chosen)
    found, j = [sizes[-1]], len(sizes)
    for chosen in reversed(choices):
        j = chosen[j]
        if j == 0:
            break
        found.append(sizes[j - 1])
    return found[::-1]


def suggest(dims: Sequence[tuple[str, int]], shapes: Mapping[Shape, int], k: int) -> SuggestedGears:
    """Return at most `k` gears for shapes met (sizes of `dims` -> calls); `GearSpecError` where nothing was met."""
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_GEARS:
        raise GearSpecError(f"suggest_gears: k is {k!r}; it must be an int from 1 to {MAX_GEARS}")
    met = {shape: calls for shape, calls in shapes.items() if calls and all(size > 0 for size in shape)}
    if not met or not dims:
        raise GearSpecError(
            "suggest_gears: no shapes were met yet; call the method first (a method without gears counts its shapes "
            "with CompilerConfig(count_shapes=True))"
        )
    followed = _followed(list(range(len(dims))), met)
    owners = [index for index, owner in followed.items() if owner is None]
    owners = [index for index in owners if len({shape[index] for shape in met}) > 1] or owners[:1]
    counts: dict[Shape, int] = {}
    for shape, calls in met.items():
        own = tuple(shape[index] for index in owners)
        counts[own] = counts.get(own, 0) + calls
    lists = _best_lists(counts, k)
    gears: dict[str, dict[int, Any]] = {}
    symbols = {
        index: Symbol(f"n{number}", gears=sizes)
        for number, (index, sizes) in enumerate(zip(owners, lists, strict=True))
    }
    is_single = len(owners) == 1 and all(owner is None or owner[0] not in symbols for owner in followed.values())
    for index, owner in followed.items():
        path, dim = dims[index]
        if index in symbols:
            gears.setdefault(path, {})[dim] = lists[0] if is_single else symbols[index]
        elif owner is not None and owner[0] in symbols:
            gears.setdefault(path, {})[dim] = _expression(symbols[owner[0]], owner[1], owner[2])
    sizes = {f"{dims[index][0]}.size({dims[index][1]})": row for index, row in zip(owners, lists, strict=True)}
    least = sum(calls * math.prod(shape) for shape, calls in counts.items())
    return SuggestedGears(gears, sizes, sum(counts.values()), round(_work(counts, lists)), least)


def _followed(indices: list[int], met: Mapping[Shape, int]) -> dict[int, tuple[int, int, int] | None]:
    """Return for each dim the earlier one it follows, as (index, factor, offset), or None."""
    found: dict[int, tuple[int, int, int] | None] = {}
    for index in indices:
        found[index] = None
        if len({shape[index] for shape in met}) == 1:
            continue
        for owner in [item for item, before in found.items() if before is None and item != index]:
            offsets = {shape[index] - shape[owner] for shape in met}
            factors = {divmod(shape[index], shape[owner]) for shape in met}
            if len(offsets) == 1:
                found[index] = (owner, 1, offsets.pop())
            elif len(factors) == 1 and next(iter(factors))[1] == 0:
                found[index] = (owner, factors.pop()[0], 0)
            if found[index] is not None:
                break
    return found


def _expression(symbol: Symbol, factor: int, offset: int) -> SizeExpression:
    scaled = symbol if factor == 1 else factor * symbol
    return scaled if offset == 0 else scaled + offset


def _best_lists(counts: Mapping[Shape, int], k: int) -> list[list[int]]:
    """Return one list of sizes per dim, with a product of at most `k` lengths."""
    columns = [sorted({shape[index] for shape in counts}) for index in range(len(next(iter(counts))))]
    best: tuple[float, list[list[int]]] | None = None
    for lengths in _lengths([len(column) for column in columns], k):
        for lists in _candidates(columns, lengths, counts):
            work = _work(counts, lists)
            if best is None or work < best[0]:
                best = work, lists
    assert best is not None
    return best[1]


def _lengths(limits: list[int], k: int) -> Iterator[tuple[int, ...]]:
    """Yield the lengths of lists whose product is at most `k`, those that leave no room for one more."""
    fitting = [
        lengths
        for lengths in itertools.product(*(range(1, min(limit, k) + 1) for limit in limits))
        if math.prod(lengths) <= k
    ]
    for lengths in fitting:
        longer = (
            tuple(length + (at == index) for at, length in enumerate(lengths))
            for index, limit in enumerate(limits)
            if lengths[index] < limit
        )
        if not any(math.prod(item) <= k for item in longer):
            yield lengths


def _candidates(
    columns: list[list[int]], lengths: tuple[int, ...], counts: Mapping[Shape, int]
) -> Iterator[list[list[int]]]:
    *others, last = range(len(columns))
    tried = math.prod(math.comb(len(columns[at]) - 1, lengths[at] - 1) for at in others)
    if tried <= _MAX_TRIED:
        for chosen in itertools.product(*(itertools.combinations(columns[at][:-1], lengths[at] - 1) for at in others)):
            lists = [[*row, columns[at][-1]] for at, row in zip(others, chosen, strict=True)]
            yield [*lists, _best_for(last, [*lists, []], lengths[last], counts)]
        return
    lists = [best_sizes(dict.fromkeys(column, 1.0), length) for column, length in zip(columns, lengths, strict=True)]
    before = math.inf
    while _work(counts, lists) < before:
        before = _work(counts, lists)
        for at in range(len(columns)):
            lists[at] = _best_for(at, lists, lengths[at], counts)
    yield lists


def _best_for(at: int, lists: list[list[int]], length: int, counts: Mapping[Shape, int]) -> list[int]:
    """Return the best list of one dim, given those of the others."""
    weights: dict[int, float] = {}
    for shape, calls in counts.items():
        rest = math.prod(_held(size, lists[index]) for index, size in enumerate(shape) if index != at)
        weights[shape[at]] = weights.get(shape[at], 0.0) + calls * rest
    return best_sizes(weights, length)


def _held(size: int, sizes: list[int]) -> int:
    return sizes[bisect.bisect_left(sizes, size)]


def _work(counts: Mapping[Shape, int], lists: list[list[int]]) -> float:
    return sum(
        calls * math.prod(_held(size, row) for size, row in zip(shape, lists, strict=True))
        for shape, calls in counts.items()
    )
