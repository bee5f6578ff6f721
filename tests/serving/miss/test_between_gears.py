"""Calls between gears whose other dims or strides are new: graphs that they can be padded to are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import gearcache
from tests.support.scenarios import strict_config


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(20, 4)
        self.linear = torch.nn.Linear(4, 4)

    def classify(self, ids: Tensor) -> Tensor:
        return self.embedding(ids).sum(1)

    def run(self, x: Tensor, flag: bool = True) -> Tensor:
        y = self.linear(x)
        return y.relu() if flag else y


def cached(name: str, **options: Any) -> Any:
    method = getattr(Net().eval(), name)
    argument = "ids" if name == "classify" else "x"
    config = strict_config(on_miss="pad", pad_values={argument: 0}, **options)
    return gearcache.cache_compile(method, gears={argument: {0: [2, 4]}}, config=config)


def assert_served(method: Any, *arguments: Any) -> None:
    with torch.no_grad():
        torch.testing.assert_close(method(*arguments), method.function(*arguments), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shapes", [[(3, 5), (2, 7)], [(1, 1)]], ids=["between gears first", "size 1"])
def test_a_new_length_is_served_between_gears_in_any_order(shapes: list[tuple[int, int]], cache_dir: Path) -> None:
    for launch in ("first", "second"):
        method = cached("classify")
        for shape in shapes:
            assert_served(method, torch.randint(0, 20, shape))
        lengths = len({length for _, length in shapes})
        assert method.stats.compiles == (2 * lengths if launch == "first" else 0)


def _sliced(*shape: int) -> Tensor:
    return torch.randn(*shape[:-1], shape[-1] + 2)[..., : shape[-1]]


def _transposed(*shape: int) -> Tensor:
    return torch.randn(*reversed(shape)).permute(*reversed(range(len(shape))))


def test_other_strides_are_served_between_gears(cache_dir: Path) -> None:
    calls = [(torch.randn, 4, 4), (_sliced, 3, 4), (_transposed, 3, 4), (torch.randn, 3, 4), (_sliced, 4, 4)]
    for launch in ("first", "second"):
        method = cached("run")
        for flag in (True, False):
            for make, *shape in calls:
                assert_served(method, make(*shape), flag)
        assert launch == "first" or method.stats.traces == 0
