"""Finds the lists of sizes, one per dim, that waste the least work, within a bounded effort.

For one dim the best `k` sizes are found exactly, by dynamic programming over the sorted sizes. Several independent dims
form a product of lists. If there are few lists, all lists of the other dims are tried, each with the best list for the
last one, which is exact as well. Otherwise one list at a time is made the best for the others until nothing improves.
With too many dims for that, the lists grow by the size that saves the most, one at a time.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import deque
from collections.abc import Iterator, Mapping

#: The most steps, of about 0.3 µs each, for the lists of one method.
MOST_EFFORT = 1_000_000
_MOST_TRIED = 2000
_MOST_LENGTHS = 256
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


def best_lists(counts: Mapping[Shape, int], k: int, effort: int = MOST_EFFORT) -> Lists:
    """Return one list of sizes per dim, with a product of at most `k` lengths."""
    columns = [sorted({shape[index] for shape in counts}) for index in range(len(next(iter(counts))))]
    return _Search(columns, counts, effort).lists(k)


class _Search:
    def __init__(self, columns: Lists, counts: Mapping[Shape, int], effort: int) -> None:
        self._columns, self._counts, self._effort_left = columns, counts, effort

    def lists(self, k: int) -> Lists:
        limits = [len(column) for column in self._columns]
        if len(limits) == 1:
            return [self._best_for(0, [[]], min(k, limits[0]))]
        all_lengths = list(itertools.islice(_lengths(limits, k), _MOST_LENGTHS + 1))
        best = self._grow_lists(k) if len(all_lengths) > _MOST_LENGTHS else self._uniform_lists(all_lengths[0])
        best_work = work_of(self._counts, best)
        for number, lengths in enumerate(all_lengths if len(all_lengths) <= _MOST_LENGTHS else ()):
            share = self._effort_left // (len(all_lengths) - number)
            for lists in self._candidates(lengths, share):
                self._effort_left -= self._price
                if (work := work_of(self._counts, lists)) < best_work:
                    best, best_work = lists, work
        return best

    @property
    def _price(self) -> int:
        """Return the cost of examining all shapes."""
        return len(self._counts) * len(self._columns)

    def _uniform_lists(self, lengths: tuple[int, ...]) -> Lists:
        """Return lists as if all sizes of a dim were equally frequent."""
        pairs = zip(self._columns, lengths, strict=True)
        return [best_sizes(dict.fromkeys(column, 1.0), length) for column, length in pairs]

    def _candidates(self, lengths: tuple[int, ...], effort: int) -> Iterator[Lists]:
        columns = self._columns
        *others, last = range(len(columns))
        number_of_lists = math.prod(math.comb(len(columns[at]) - 1, lengths[at] - 1) for at in others)
        price = 2 * self._price + len(columns[last]) * lengths[last]
        if number_of_lists <= _MOST_TRIED and number_of_lists * price <= effort:
            rows = (itertools.combinations(columns[at][:-1], lengths[at] - 1) for at in others)
            for combination in itertools.product(*rows):
                lists = [[*column, columns[at][-1]] for at, column in zip(others, combination, strict=True)]
                yield [*lists, self._best_for(last, [*lists, []], lengths[last])]
            return
        end = self._effort_left - effort
        lists, previous_work = self._uniform_lists(lengths), math.inf
        while self._effort_left > end and (work := work_of(self._counts, lists)) < previous_work:
            previous_work = work
            yield list(lists)
            for at in range(len(columns)):
                lists[at] = self._best_for(at, lists, lengths[at])
        yield lists

    def _grow_lists(self, k: int) -> Lists:
        """Add the size that saves the most, again and again, while there is room and effort is left."""
        lists = [column[-1:] for column in self._columns]
        while self._effort_left > 0:
            extensions = []
            for at, column in enumerate(self._columns):
                length = len(lists[at]) + 1
                if length > len(column) or math.prod(map(len, lists)) // len(lists[at]) * length > k:
                    continue
                longer_lists = [*lists[:at], self._best_for(at, lists, length), *lists[at + 1 :]]
                extensions.append((work_of(self._counts, longer_lists), at, longer_lists))
            if not extensions:
                break
            _, _, lists = min(extensions)
        return lists

    def _best_for(self, at: int, lists: Lists, length: int) -> list[int]:
        """Return the best list of one dim, given those of the others."""
        self._effort_left -= 2 * self._price + len(self._columns[at]) * length
        weights: dict[int, float] = {}
        for shape, calls in self._counts.items():
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
