"""Calls between gears whose other dims or strides are new: graphs that they can be padded to are made."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

import gearcache
from gearcache.guards.dispatch.fills import Fills
from gearcache.guards.dispatch.graph_call import GraphCall
from gearcache.serving.find.activate import ActiveVariant
from gearcache.serving.miss.padded_calls import PaddedCalls
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


def test_another_padded_size_leaves_the_frames_of_the_others_as_they_are(cache_dir: Path) -> None:
    method = cached("classify")
    for rows in (3, 2):
        assert_served(method, torch.randint(0, 20, (rows, 5)))
    present = method._binding.loaded.gears
    assert_served(method, torch.randint(0, 20, (1, 5)))
    later = method._binding.loaded.gears
    assert len(later) == len(present) + 1
    assert all(any(gear is other for other in later) for gear in present)


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


class Hidden(torch.nn.Module):
    def masked(self, x: Tensor, mask: Tensor, times: int) -> Tensor:
        return (x * mask).sum(1) * times

    @functools.wraps(masked)
    def run(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.masked(*args, **kwargs)


def test_a_mask_behind_a_wrapper_is_padded_however_it_is_given(cache_dir: Path) -> None:
    config = strict_config(on_miss="pad", pad_values={"x": 0, "mask": 0})
    method: Any = gearcache.cache_compile(Hidden().run, gears={"x": {1: [4, 8]}}, config=config)
    x = torch.ones(2, 3)
    with torch.no_grad():
        for answer in (method(x, mask=x + 1, times=2), method(x, x + 1, 2), method(x, mask=x + 1, times=2)):
            assert torch.equal(answer, torch.full((2,), 12.0))
    assert method.stats.eager_calls == 0


def test_constants_behind_a_wrapper_stay_constant_however_they_are_given(cache_dir: Path) -> None:
    method: Any = gearcache.cache_compile(Hidden().run, constants=["times"], config=strict_config())
    x = torch.ones(2, 3)
    with torch.no_grad():
        for times in (2, 3, 4):
            assert torch.equal(method(x, x, times=times), torch.full((2,), 3.0 * times))
        for times in (2, 3, 4):
            assert torch.equal(method(x, x, times), torch.full((2,), 3.0 * times))
    assert method.stats.traces == 6


def test_a_padded_gear_that_is_dropped_is_gone_for_all_objects_of_its_trace() -> None:
    """The same trace, loaded for other objects, shares its graphs."""
    kept, dropped = cast(GraphCall, "kept"), cast(GraphCall, "dropped")
    graphs = [kept, dropped]
    of_one, of_another = (cast(ActiveVariant, SimpleNamespace(graphs=graphs)) for _ in range(2))
    PaddedCalls(Fills({}, False))._forget(of_one, dropped)
    assert of_one.graphs == of_another.graphs == [kept]
