"""What may vary between calls, and what becomes of it: each cell of the table in docs/guide.md is run here.

`python -m tests.serving.test_what_varies` prints the table.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import InputError
from tests.support.sampled import sampled_rows
from tests.support.scenarios import strict_config

ONE, THEN, EACH, GEARS, ERROR = (
    "one graph",
    "a static graph, then one for all",
    "a graph each",
    "a static graph for each gear, at the first call",
    "`InputError`",
)
#: Options by the title of their column.
COLUMNS: dict[str, dict[str, Any]] = {
    "`dynamic=True`": {"dynamic": True},
    "`dynamic=None`": {"dynamic": None},
    "`dynamic=False`": {"dynamic": False},
    "`gears` of `x.size(0)`": {"gears": {"x": {0: [3, 5, 6, 9]}}},
}
ROWS: dict[str, tuple[str, list[str]]] = {
    "a size": ("size", [ONE, THEN, EACH, GEARS]),
    "another size": ("width", [ONE, THEN, EACH, THEN]),
    "half of a size, `int(x.size(1) * 0.5)`": ("halved", [ONE, THEN, EACH, THEN]),
    "an int": ("number", [ONE, THEN, EACH, ONE]),
    "an int in a dict": ("nested", [ONE, THEN, EACH, ONE]),
    "an int of the module": ("position", [THEN, THEN, EACH, THEN]),
    "a size of what the module holds": ("blocks", [ONE, THEN, EACH, THEN]),
    "an int that a loop runs to": ("turns", [EACH, EACH, EACH, EACH]),
    "a float": ("factor", [THEN, THEN, EACH, THEN]),
    "a float that is computed from an int": ("decayed", [ONE, THEN, EACH, ONE]),
    "a bool, a text": ("text", [EACH, EACH, EACH, EACH]),
    "the length of a list": ("items", [EACH, EACH, EACH, EACH]),
    "a dtype": ("dtype", [EACH, EACH, EACH, ERROR]),
    "strides": ("strides", [EACH, EACH, EACH, EACH]),
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.position = 3
        self.blocks = [torch.zeros(3, 4)]

    def size(self, x: Tensor) -> Tensor:
        return x * 2

    width = dtype = strides = size

    def halved(self, x: Tensor) -> Tensor:
        return x[:, : int(x.size(1) * 0.5)] * 2

    def number(self, x: Tensor, n: int) -> Tensor:
        return x[:, :n] * n

    def nested(self, x: Tensor, sizes: dict[str, int]) -> Tensor:
        return x[:, : sizes["width"]] + sizes["width"]

    def at_position(self, x: Tensor) -> Tensor:
        return x + torch.arange(self.position, self.position + 8)

    def held(self, x: Tensor) -> Tensor:
        return x + self.blocks[0].sum()

    def turns(self, x: Tensor, n: int) -> Tensor:
        for step in range(n):
            x = x * 2 + step
        return x

    def factor(self, x: Tensor, factor: float) -> Tensor:
        return x * factor

    def decayed(self, x: Tensor, step: int) -> Tensor:
        return x * (1 - step / 20)

    def text(self, x: Tensor, word: str | bool) -> Tensor:
        return x + 1 if word in ("add", True) else x * 2

    def items(self, x: Tensor, others: list[Tensor]) -> Tensor:
        return x + sum(item.sum() for item in others)


X = torch.arange(24.0).reshape(3, 8)


def _at(net: Net, position: int) -> tuple[Any, ...]:
    net.position = position
    return (X,)


def _holding(net: Net, blocks: int) -> tuple[Any, ...]:
    net.blocks[0] = torch.full((blocks, 4), 0.5)
    return (X,)


def _transposed(x: Tensor) -> Tensor:
    return x.t().contiguous().t()


def _broadcast(x: Tensor) -> Tensor:
    return x[:, :1].expand(3, 8)


#: Name -> the method, and the arguments of its calls, made when they are due.
CASES: dict[str, tuple[Callable[..., Any], list[Callable[[Net], tuple[Any, ...]]]]] = {
    "size": (Net.size, [lambda _, n=n: (torch.randn(n, 8),) for n in (3, 5, 9)]),
    "width": (Net.width, [lambda _, n=n: (torch.randn(3, n),) for n in (8, 5, 9)]),
    "halved": (Net.halved, [lambda _, n=n: (torch.randn(3, n),) for n in (8, 5, 9)]),
    "number": (Net.number, [lambda _, n=n: (X, n) for n in (3, 5, 2)]),
    "nested": (Net.nested, [lambda _, n=n: (X, {"width": n}) for n in (3, 5, 2)]),
    "position": (Net.at_position, [lambda net, n=n: _at(net, n) for n in (3, 5, 0)]),
    "blocks": (Net.held, [lambda net, n=n: _holding(net, n) for n in (100, 103, 7)]),
    "turns": (Net.turns, [lambda _, n=n: (X, n) for n in (3, 5, 2)]),
    "factor": (Net.factor, [lambda _, n=n: (X, n) for n in (0.5, 1.5, -2.0)]),
    "decayed": (Net.decayed, [lambda _, n=n: (X, n) for n in (3, 5, 2)]),
    "text": (Net.text, [lambda _, n=n: (X, n) for n in ("add", "double", True)]),
    "items": (Net.items, [lambda _, n=n: (X, [X + i for i in range(n)]) for n in (2, 3, 4)]),
    "dtype": (Net.dtype, [lambda _, n=n: (X.to(n),) for n in (torch.float32, torch.float64, torch.int64)]),
    "strides": (Net.strides, [lambda _, n=n: (n(torch.randn(3, 8)),) for n in (Tensor.clone, _transposed, _broadcast)]),
}


def _outcome(case: str, options: dict[str, Any], cache_dir: Path) -> str:
    """Run the calls of a case twice, the second time as relaunched, and say what became of them."""
    method, calls = CASES[case]
    for launch in range(2):
        ours, theirs = Net(), Net()
        cached = gearcache.cache_compile(method.__get__(ours), config=strict_config(), cache_dir=cache_dir, **options)
        traces = []
        for make in calls:
            make(theirs)
            arguments = make(ours)
            try:
                found = cached(*arguments)
            except InputError:
                return ERROR
            expected = method(theirs, *arguments)
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
            assert found.stride() == expected.stride()
            traces.append(cached.stats.traces)
        if launch:
            assert traces[-1] == 0, "a relaunch traces nothing"
            assert cached.stats.eager_calls == 0
            break
        count, compiles = len(calls), cached.stats.compiles
        if traces == [1] * count:
            outcome = GEARS if compiles == 4 and case == "size" else ONE
        elif traces == [1, *[2] * (count - 1)]:
            outcome = THEN
        else:
            assert traces == list(range(1, count + 1)), traces
            outcome = EACH
    return outcome


CELLS = [(row, column) for row in ROWS for column in COLUMNS]
#: Each row is tried with gears, or where it asks for symbols if it never gets them; some rows more often.
CELLS_KEPT = [
    (row, "`dynamic=True`" if set(cells) == {EACH} else "`gears` of `x.size(0)`") for row, (_, cells) in ROWS.items()
]
CELLS_KEPT += [("a size", f"`dynamic={value}`") for value in (True, None, False)] + [("an int", "`dynamic=None`")]


@pytest.mark.parametrize(("row", "column"), sampled_rows(CELLS, CELLS_KEPT))
def test_what_becomes_of_what_varies(row: str, column: str, cache_dir: Path) -> None:
    case, expected = ROWS[row]
    assert _outcome(case, COLUMNS[column], cache_dir) == expected[list(COLUMNS).index(column)]


class OddInts(nn.Module):
    """Ints that are 0 at first, None or a bool at times, compared with a size, all that a graph takes, or a divisor."""

    def branched(self, x: Tensor, counts: list[int]) -> Tensor:
        return x + 1 if not counts[0] else x * counts[0]

    def optional(self, x: Tensor, n: int | None) -> Tensor:
        return x - (n if n is not True and n is not None else 100)

    def within(self, x: Tensor, n: int) -> Tensor:
        return x * n if n <= x.shape[0] else x * 0 - 1

    def absolute(self, x: Tensor, n: int) -> Tensor:
        return x[: abs(n - 3)] * abs(n)

    def alone(self, x: Tensor, n: int) -> Tensor:
        return torch.arange(n)

    def parted(self, x: Tensor, m: int) -> tuple[Tensor, Tensor]:
        """At a size of 1 it is traced at another gear's, where `reshape` asks whether the int is the size."""
        return x * 2, x.reshape(m, -1)


TWO_GEARS: dict[str, Any] = {"gears": {"x": {0: [2, 4]}}}
TIED = [(4, 1), (4, 2), (2, 5), (4, 3), (2, 2), (4, 4), (4, 0), (2, 1)]
#: Method -> its options and those of the config, its calls (rows and int), and the most traces that they may cost.
ODD_INTS: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[int, Any]], int]] = {
    "branched": ({"dynamic": True}, {}, [(4, [n]) for n in (1, 3, 5, 1, 0)], 3),
    "branched, gears": (TWO_GEARS, {}, [(4, [n]) for n in (0, 3, 5, 1, 0)], 3),
    "optional": ({"dynamic": True}, {}, [(4, n) for n in (None, 2, 3, 19, True, -3, None)], 3),
    "within": (TWO_GEARS, {}, TIED, 2),
    "absolute": (TWO_GEARS, {"validate": "gears"}, TIED, 3),
    "alone": ({"dynamic": True}, {}, [(4, n) for n in (5, 6, 3, 1, 0)], 2),
    # A graph that does not fit its call is not followed by another one here.
    "parted": ({"gears": {"x": {0: [1, 3]}}}, {"on_miss": "eager"}, [(1, 3), (3, 3), (3, 2)], 4),
}


@pytest.mark.parametrize("name", ODD_INTS)
def test_odd_ints_are_served_in_any_order(name: str, cache_dir: Path) -> None:
    options, settings, calls, traces = ODD_INTS[name]
    body = getattr(OddInts(), name.partition(",")[0])
    for order, most in ((calls, traces), (calls[::-1], 0)):
        cached = gearcache.cache_compile(body, config=strict_config(**settings), **options)
        for rows, n in order:
            x = torch.full((rows, 12), 3.0)
            torch.testing.assert_close(cached(x, n), body(x, n), rtol=0, atol=0)
        assert cached.stats.traces <= most


def test_the_guide_has_the_table() -> None:
    guide = Path(__file__).parents[2] / "docs" / "guide.md"
    assert table() in guide.read_text()


def table() -> str:
    """Return the table of docs/guide.md."""
    lines = [f"| what varies | {' | '.join(COLUMNS)} |", f"|---|{'---|' * len(COLUMNS)}"]
    lines += [f"| {row} | {' | '.join(expected)} |" for row, (_, expected) in ROWS.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
