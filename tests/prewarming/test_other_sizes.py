"""What is stored for one size of a dim without gears says nothing about calls of another size, or of another int."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import strict_config

GEARS = {"x": {0: [1, 2, 4]}}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def cut(self, x: Tensor, n: int) -> Tensor:
        return self.linear(x)[:, :n]

    def masked(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.linear(x) * mask + x.size(1)


def calls(name: str, *arguments: tuple[Any, ...]) -> Callable[[], None]:
    def function() -> None:
        torch.manual_seed(0)
        method: Any = gearcache.cache_compile(getattr(Net(), name), gears=GEARS, dynamic=None, config=strict_config())
        for each in arguments:
            method.warm(*each)

    return function


def rows(batch: int, length: int) -> Tensor:
    return torch.ones(batch, length, 8)


def test_a_call_of_another_int_or_size_is_not_ready(cache_dir: Path) -> None:
    first, second = (rows(2, 3), 2), (rows(2, 3), 1)
    stored = gearcache.prewarm(calls("cut", first))
    assert sum(len(entry.compiled) for entry in stored.entries) == 3
    for other, dims, reason in (
        (second, "", "`n`: constant was 2, is now 1"),
        ((rows(2, 5), 2), ", x.size(1)=5", "`x.size(1)` is 5, its graph is for 3"),
    ):
        look = gearcache.prewarm(calls("cut", first, other), dry_run=True)
        assert not look.is_complete
        (entry,) = look.entries
        assert entry.missing == [f"x.size(0)={size}{dims}" for size in (1, 2, 4)]
        assert next(iter(entry.reasons.values())) == reason
    again = gearcache.prewarm(calls("cut", first, second))
    assert (again.is_complete, again.compiled) == (True, 3)
    assert gearcache.prewarm(calls("cut", first, second), dry_run=True).is_complete


def test_dims_that_follow_a_gear_do_not_count(cache_dir: Path) -> None:
    """Prewarmed at one gear, looked up at another: the mask has another size, too."""
    gearcache.prewarm(calls("masked", (rows(2, 3), torch.ones(2, 1, 8))))
    for batch in (1, 2, 4):
        function = calls("masked", (rows(batch, 3), torch.ones(batch, 1, 8)))
        assert gearcache.prewarm(function, dry_run=True).is_complete
        report = gearcache.prewarm(function)
        assert [list(entry.compiled) for entry in report.entries] == [[]]
