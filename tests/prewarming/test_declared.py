"""A prewarm of methods whose arguments are declared: a function that only makes them is enough."""

from __future__ import annotations

from pathlib import Path

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
