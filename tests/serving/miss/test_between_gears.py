"""Calls between gears whose other dims or strides are new: graphs that they can be padded to are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import gearcache
from gearcache.errors import UnknownGear
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


@pytest.mark.parametrize(
    "shapes",
    [[(2, 5), (3, 5)], [(3, 5), (2, 7)], [(1, 1)]],
    ids=["of a gear first", "between gears first", "size 1"],
)
def test_a_new_length_is_served_between_gears_in_any_order(shapes: list[tuple[int, int]], cache_dir: Path) -> None:
    for launch in ("first", "second"):
        method = cached("classify")
        for shape in shapes:
            assert_served(method, torch.randint(0, 20, shape))
        lengths = len({length for _, length in shapes})
        assert method.stats.compiles == (2 * lengths if launch == "first" else 0)


def test_the_prewarm_of_such_calls_is_complete(cache_dir: Path) -> None:
    def build() -> Any:
        method = cached("classify")
        for length in (5, 6):
            method.warm(torch.zeros(3, length, dtype=torch.long))
        return method

    before = gearcache.prewarm(build, dry_run=True)
    assert (before.is_complete, before.failed) == (False, 0)
    assert (report := gearcache.prewarm(build)).is_complete, report
    assert gearcache.prewarm(build, dry_run=True).is_complete


def test_a_call_larger_than_all_gears_compiles_nothing(cache_dir: Path) -> None:
    method = cached("classify")
    for shape in ((5, 5), (5, 6)):
        with pytest.raises(UnknownGear, match=r"padding: gear ids.size\(0\)=4 is smaller than 5"):
            method(torch.zeros(shape, dtype=torch.long))
    assert method.stats.traces == 0


def _sliced(*shape: int) -> Tensor:
    return torch.randn(*shape[:-1], shape[-1] + 2)[..., : shape[-1]]


def _transposed(*shape: int) -> Tensor:
    return torch.randn(*reversed(shape)).permute(*reversed(range(len(shape))))


CALLS: dict[str, list[tuple[Any, ...]]] = {
    "gear first": [(torch.randn, 4, 4), (_sliced, 3, 4), (_transposed, 3, 4), (torch.randn, 3, 4), (_sliced, 4, 4)],
    "lengths": [(torch.randn, 4, 3, 4), (_sliced, 3, 3, 4), (_sliced, 3, 5, 4)],
}


@pytest.mark.parametrize("name", CALLS)
def test_other_strides_are_served_between_gears(name: str, cache_dir: Path) -> None:
    for launch in ("first", "second"):
        method = cached("run")
        for flag in (True, False) if name == "gear first" else (True,):
            for make, *shape in CALLS[name]:
                assert_served(method, make(*shape), flag)
        assert launch == "first" or method.stats.traces == 0
