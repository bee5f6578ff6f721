"""Finds the lists of sizes, one per dim, that waste the least work.

For one dim the best `k` sizes are found exactly, by dynamic programming over the sorted sizes. Several independent dims
form a product of lists: for each combination of lengths, one list at a time is made the best for the others until
nothing improves. With too many combinations, the lists grow by the size that saves the most, one at a time.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

#: With more combinations of lengths, only one is tried.
_MOST_LENGTHS = 64
Shape = tuple[int, ...]
Lists = list[list[int]]


def best_sizes(counts: Mapping[int, float], k: int) -> list[int]:
    """Return at most `k` sizes that minimise the sum of weight times the smallest size that holds each one."""
    sizes = sorted(counts)
    if k >= len(sizes):
        return sizes
    weights = list(itertools.accumulate((counts[size] for size in sizes), initial=0.0))
    # best[j]: the least work for the j smallest sizes, if the largest of them is chosen.
    best = [0.0] + [size * weights[j + 1] for j, size in enumerate(sizes)]
    choices: list[list[int]] = []
    for _ in range(k - 1):
        best, splits = _with_one_more(best, sizes, weights)
        choices.append(splits)
    picked, j = [sizes[-1]], len(sizes)
    for splits in reversed(choices):
        j = splits[j]
        if j == 0:
            break
        picked.append(sizes[j - 1])
    return picked[::-1]


def _with_one_more(previous: list[float], sizes: list[int], weights: list[float]) -> tuple[list[float], list[int]]:
    """Return the least work with one more size, and the index where the smaller ones end.

    If smaller chosen sizes hold the first i of the first j sizes, the work for these j sizes is
    `previous[i] + size * (weights[j] - weights[i])`: for each i, this is a line over the size. The lines get flatter
    and the sizes larger, so a line that was overtaken is never needed again, and each line is examined at most twice.
    """
    best, splits = [0.0], [0]
    lines: deque[int] = deque()

    def value(line: int, size: int) -> float:
        return previous[line] - size * weights[line]

    def is_needless(first: int, middle: int, last: int) -> bool:
        return (previous[last] - previous[first]) * (weights[middle] - weights[first]) <= (
            previous[middle] - previous[first]
        ) * (weights[last] - weights[first])

    for j, size in enumerate(sizes, start=1):
        while len(lines) > 1 and is_needless(lines[-2], lines[-1], j - 1):
            lines.pop()
        lines.append(j - 1)
        while len(lines) > 1 and value(lines[1], size) < value(lines[0], size):
            lines.popleft()
        best.append(previous[lines[0]] + size * (weights[j] - weights[lines[0]]))
        splits.append(lines[0])
    return best, splits


def best_lists(counts: Mapping[Shape, int], k: int) -> Lists:
    """Return one list of sizes per dim, with a product of at most `k` lengths."""
    columns = [sorted({shape[index] for shape in counts}) for index in range(len(next(iter(counts))))]
    lengths = list(itertools.islice(_lengths(list(map(len, columns)), k), _MOST_LENGTHS + 1))
    if len(lengths) > _MOST_LENGTHS:
        return _improved(counts, _grown(counts, columns, k))
    return min((_improved(counts, _uniform(columns, each)) for each in lengths), key=partial(work_of, counts))


def _uniform(columns: Lists, lengths: Sequence[int]) -> Lists:
    """Return lists as if all sizes of a dim were equally frequent."""
    return [best_sizes(dict.fromkeys(column, 1.0), n) for column, n in zip(columns, lengths, strict=True)]


def _grown(counts: Mapping[Shape, int], columns: Lists, k: int) -> Lists:
    """Return the lists that result from adding the size that saves the most, again and again, while there is room."""
    lists = [column[-1:] for column in columns]
    while True:
        longer = [
            [*lists[:at], _best_for(counts, at, lists, len(lists[at]) + 1), *lists[at + 1 :]]
            for at, column in enumerate(columns)
            if len(lists[at]) < len(column) and math.prod(map(len, lists)) // len(lists[at]) * (len(lists[at]) + 1) <= k
        ]
        if not longer:
            return lists
        lists = min(longer, key=partial(work_of, counts))


def _improved(counts: Mapping[Shape, int], lists: Lists) -> Lists:
    """Make each list the best one of its length for the others, until nothing improves."""
    while True:
        better = list(lists)
        for at in range(len(lists)):
            better[at] = _best_for(counts, at, better, len(lists[at]))
        if work_of(counts, better) >= work_of(counts, lists):
            return lists
        lists = better


def _best_for(counts: Mapping[Shape, int], at: int, lists: Lists, length: int) -> list[int]:
    """Return the best list of one dim, given those of the others."""
    weights: dict[int, float] = {}
    for shape, calls in counts.items():
        other_sizes = math.prod(held(size, lists[index]) for index, size in enumerate(shape) if index != at)
        weights[shape[at]] = weights.get(shape[at], 0.0) + calls * other_sizes
    return best_sizes(weights, length)


def _lengths(limits: list[int], k: int) -> Iterator[tuple[int, ...]]:
    """Yield the lengths of lists whose product is at most `k`, and that leave no room for one more."""

    def longer(lengths: tuple[int, ...], room: int) -> Iterator[tuple[int, ...]]:
        if len(lengths) == len(limits):
            total, pairs = math.prod(lengths), zip(lengths, limits, strict=True)
            if not any(length < limit and total // length * (length + 1) <= k for length, limit in pairs):
                yield lengths
            return
        for length in range(min(limits[len(lengths)], room), 0, -1):
            yield from longer((*lengths, length), room // length)

    yield from longer((), k)


def held(size: int, sizes: list[int]) -> int:
    """Return the smallest of some sorted sizes that holds a size."""
    return sizes[bisect.bisect_left(sizes, size)]


def work_of(counts: Mapping[Shape, int], lists: Lists) -> float:
    """Return the rows that are computed with a product of lists, over all calls."""
    return sum(
        calls * math.prod(held(size, sizes) for size, sizes in zip(shape, lists, strict=True))
        for shape, calls in counts.items()
    )
