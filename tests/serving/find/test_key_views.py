"""A method that asks a dictionary for single keys depends on these keys; one that lists or counts them, on all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import strict_config

TABLES: list[dict[str, int]] = [
    {"a": 1, "b": 2},
    {"a": 1, "c": 3},
    {"c": 3, "a": 1, "b": 2},
    {"b": 2, "a": 1},
    {"a": 1},
]
X = torch.arange(4.0)


class Table(nn.Module):
    """The method `run` asks the table in the way of a test."""

    def __init__(self, table: dict[str, int], ask: Callable[[Any, list[str]], int]) -> None:
        super().__init__()
        self.table, self.ask, self.wanted = table, ask, ["b", "c"]

    def run(self, x: Tensor) -> Tensor:
        return x * self.ask(self.table, self.wanted)


def _next_of_two(table: Any, wanted: list[str]) -> int:
    keys = iter(table.keys())
    return ord(next(keys))


#: Questions about single keys, with the number of traces for all tables.
SINGLE: dict[str, tuple[Callable[[Any, list[str]], int], int]] = {
    "in the keys": (lambda table, wanted: 2 if "b" in table.keys() else 3, 2),  # noqa: SIM118
    "of a list, in the keys": (lambda table, wanted: sum(name in table.keys() for name in wanted), 4),  # noqa: SIM118
    "the value of one": (lambda table, wanted: table["a"], 1),
}
#: Questions about all keys.
ALL: dict[str, Callable[[Any, list[str]], int]] = {
    "the next": _next_of_two,
    "common with a set": lambda table, wanted: len(table.keys() & {"a", "b"}),
    "in a loop": lambda table, wanted: sum(ord(key) * number for number, key in enumerate(table.keys(), 1)),
    "read by a set": lambda table, wanted: len({"z"}.union(table.keys())),
}


@pytest.mark.parametrize("name", SINGLE)
def test_a_question_about_single_keys_is_answered_by_one_graph(cache_dir: Path, name: str) -> None:
    ask, traces = SINGLE[name]
    assert sum(_traces(table, ask) for table in TABLES) == traces


@pytest.mark.parametrize("name", ALL)
def test_a_question_about_all_keys_is_answered_anew(cache_dir: Path, name: str) -> None:
    assert sum(_traces(table, ALL[name]) for table in TABLES[:3]) > 1


def test_keys_that_another_dictionary_takes_in_are_all_compared(cache_dir: Path) -> None:
    """Keys of two letters are pairs; a read within a method of a dictionary is not seen as one of its content."""

    def ask(table: Any, wanted: list[str]) -> int:
        made: dict[str, str] = {}
        made.update(table.keys())
        return len(made)

    assert sum(_traces(table, ask) for table in ({"ab": 1, "cd": 2}, {"ab": 1})) == 2


def _traces(table: dict[str, int], ask: Callable[[Any, list[str]], int]) -> int:
    module = Table(dict(table), ask)
    cached = gearcache.cache_compile(module.run, config=strict_config(), dynamic=False)
    assert torch.equal(cached(X), module.run(X)), table
    return cached.stats.traces
