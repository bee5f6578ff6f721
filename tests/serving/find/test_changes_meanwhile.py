"""The module is changed by another thread while graphs are loaded or compiled: the next call sees it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.ge_cache import eager
from gearcache.guards.watch.facts import WatchedFacts
from gearcache.serving.find import basis
from tests.support.scenarios import strict_config


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.scale, self.rates, self.table = 2.0, [1.0], {"a": 1.0}

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.weight * self.scale + len(self.rates)
        return y * 3 if "more" in self.table else y


CHANGES: list[Callable[[Net], Any]] = [
    lambda net: setattr(net, "scale", 3.0),
    lambda net: setattr(net.weight, "data", torch.full((2,), 7.0)),
    lambda net: net.rates.append(2.0),
    lambda net: net.table.update(more=1.0),
]
#: Where in a first call the other thread gets its turn.
MOMENTS = [(eager.EagerBackend, "load")]
MOMENTS += [(WatchedFacts, name) for name in ("begin", "add_node", "end", "add_weights")]
MOMENTS += [(basis, "joined")]


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment[1])
def test_what_changes_during_a_load_is_seen(
    moment: tuple[Any, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each call of a function that the load makes."""
    for number, change in enumerate(CHANGES):
        for turn in itertools.count():
            net, x = Net(), torch.ones(2)
            served = gearcache.cache_compile(
                net.compute, dynamic=False, cache_dir=tmp_path, config=strict_config("eager")
            )
            with monkeypatch.context() as patch, torch.no_grad():
                turns = changing(patch, moment, turn, functools.partial(change, net))
                served(x)
            if len(turns) <= turn:
                break
            with torch.no_grad():
                assert torch.equal(served(x), net.compute(x)), (number, turn)
                assert torch.equal(served(x[:1]), net.compute(x[:1])), (number, turn)
                assert torch.equal(served(x), net.compute(x)), (number, turn)


def changing(patch: pytest.MonkeyPatch, moment: tuple[Any, str], turn: int, change: Callable[[], Any]) -> list[None]:
    """Change something at one of the turns that come before and after each call of a function; returns those so far."""
    owner, name = moment
    original, turns = getattr(owner, name), list[None]()

    def take_turn() -> None:
        turns.append(None)
        if len(turns) == turn + 1:
            change()

    def during(*arguments: Any, **keywords: Any) -> Any:
        take_turn()
        found = original(*arguments, **keywords)
        take_turn()
        return found

    patch.setattr(owner, name, during)
    return turns
