"""A prewarm of methods whose arguments are declared: a function that only makes them is enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import gearcache
from gearcache import Symbol, TensorSpec
from tests.support.scenarios import strict_config

BATCH = Symbol("batch", gears=[2, 4])
SPEC = TensorSpec((BATCH, 4), torch.float32)
GEARS = ["x.size(0)=2", "x.size(0)=4"]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def run(self, x: Tensor, y: Tensor | int = 1) -> Tensor:
        return self.linear(x) * y

    def both(self, x: Tensor, y: Tensor) -> Tensor:
        return self.linear(x) * y

    def optional(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        return self.linear(x) if y is None else self.linear(x) + y

    def second_row(self, x: Tensor) -> Tensor:
        return x[1] * 2

    @gearcache.cache_compile(config=strict_config(), input_signature=SPEC)
    def decorated(self, x: Tensor) -> Tensor:
        return self.linear(x)

    @gearcache.cache_compile(config=strict_config())
    def not_declared(self, x: Tensor) -> Tensor:
        return self.linear(x)


def on_meta() -> None:
    with torch.device("meta"):
        net = Net()
    gearcache.cache_compile(net.run, config=strict_config(), input_signature=SPEC)


def fake() -> None:
    with FakeTensorMode():
        net = Net()
    gearcache.cache_compile(net.run, config=strict_config()).set_inputs(SPEC)


def real() -> None:
    gearcache.cache_compile(Net().run, config=strict_config(), input_signature={"x": SPEC})


@pytest.mark.parametrize("function", [on_meta, fake, real])
def test_what_is_declared_is_compiled_although_nothing_was_called(function: object, cache_dir: Path) -> None:
    missing = gearcache.prewarm(function, dry_run=True)  # type: ignore[arg-type]
    assert (missing.missing, missing.is_complete) == (2, False)
    report = gearcache.prewarm(function)  # type: ignore[arg-type]
    assert [(entry.method, sorted(entry.compiled)) for entry in report.entries] == [("Net.run", GEARS)]
    assert (report.is_complete, report.never_called) == (True, [])
    served = gearcache.cache_compile(Net().run, config=strict_config(), input_signature=SPEC)
    served(torch.randn(4, 4))
    assert (served.stats.traces, served.stats.misses) == (0, 0)


@pytest.mark.parametrize("wrap", [lambda net: net, lambda net: {"model": [net]}, lambda net: (nn.Sequential(net), 3)])
def test_decorated_methods_of_a_model_that_is_returned(wrap: object, cache_dir: Path) -> None:
    report = gearcache.prewarm(lambda: wrap(Net()))  # type: ignore[operator]
    assert [(entry.method, entry.failed) for entry in report.entries] == [("Net.decorated", {})]
    assert report.compiled == 2


def test_a_method_that_was_called_is_compiled_for_its_calls_only(cache_dir: Path) -> None:
    def build() -> None:
        gearcache.cache_compile(Net().both, config=strict_config(), input_signature={"x": SPEC})(
            torch.ones(2, 4), torch.ones(4)
        )

    report = gearcache.prewarm(build)
    assert (report.compiled, report.failed, report.is_complete) == (2, 0, True)


def test_an_argument_that_is_not_declared_is_in_the_report(cache_dir: Path) -> None:
    def build() -> None:
        gearcache.cache_compile(Net().both, config=strict_config(), input_signature={"x": SPEC})

    report = gearcache.prewarm(build)
    assert not report.is_complete
    (failure,) = report.entries[0].failed.values()
    assert "`Net.both`: warm: missing a required argument: 'y'; give it, or declare it with input_signature=" in failure


def test_another_device_than_that_of_the_prewarm_is_in_the_report(cache_dir: Path) -> None:
    def build() -> None:
        with torch.device("meta"):
            net = Net()
        spec = TensorSpec((BATCH, 4), torch.float32, "cuda")
        gearcache.cache_compile(net.run, config=strict_config(), input_signature=spec)

    (failure,) = gearcache.prewarm(build).entries[0].failed.values()
    assert "argument `x` is on device cpu; allowed: device cuda" in failure


OPEN = [
    ((Symbol("rows"), 4), [(1, 4), (5, 4)]),
    ((None, 4), [(1, 4), (5, 4)]),
    ((Symbol("rows", min=2, max=6, divisor=2), 4), [(2, 4), (6, 4)]),
    ((BATCH, Symbol("length"), 4), [(2, 1, 4), (4, 1, 4), (2, 3, 4)]),
    ((Symbol("rows"), Symbol("length"), 4), [(1, 1, 4), (1, 3, 4), (3, 1, 4), (3, 5, 4)]),
    ((None, None, None, None, 4), [(1, 1, 1, 1, 4), (3, 1, 5, 6, 4), (3, 4, 5, 6, 4)]),
]


@pytest.mark.parametrize("shape, shapes", OPEN)
def test_size_one_of_an_open_dim_is_compiled_too(shape: tuple[object, ...], shapes: list[Any], cache_dir: Path) -> None:
    signature = TensorSpec(shape, torch.float32)

    def made() -> Any:
        return gearcache.cache_compile(Net().run, config=strict_config(), input_signature=signature)

    report = gearcache.prewarm(made)
    assert report.is_complete
    assert gearcache.prewarm(made, dry_run=True).missing == 0
    served = made()
    for sizes in shapes:
        served(torch.randn(sizes))
    assert (served.stats.traces, served.stats.misses) == (0, 0)


def test_a_method_that_size_one_is_not_for_is_prewarmed_without_it(cache_dir: Path) -> None:
    signature = TensorSpec((None, 4), torch.float32)

    def made() -> Any:
        return gearcache.cache_compile(Net().second_row, config=strict_config(), input_signature=signature)

    report = gearcache.prewarm(made)
    assert (report.is_complete, report.failed) == (True, 0)
    served = made()
    served(torch.randn(5, 4))
    assert served.stats.traces == 0


@pytest.mark.parametrize("gears", [{"y": {0: [2, 4]}}, {"x": {0: [2, 4]}, "y": {0: [2, 4]}}, {"y": (None, 4)}])
def test_gears_of_an_argument_that_is_not_given_are_left_out(gears: Any, cache_dir: Path) -> None:
    signature = {"x": TensorSpec((None if "x" in gears else 4, 4), torch.float32)}
    net = Net()

    def made() -> Any:
        return gearcache.cache_compile(net.optional, config=strict_config(), input_signature=signature, gears=gears)

    assert gearcache.prewarm(made).is_complete
    served = made()
    rows = (2, 4) if "x" in gears else (4,)
    for size in rows:
        x = torch.randn(size, 4)
        assert torch.equal(served(x), net.linear(x))
    assert (served.stats.traces, served.stats.misses) == (0, 0)
    for size in rows:
        x, y = torch.randn(2, size, 4)
        assert torch.equal(served(x, y), net.linear(x) + y)
        assert torch.equal(served(x), net.linear(x))
    assert served.stats.traces == 1
