"""Bindings and instances: who shares an entry, and that nobody disturbs anybody."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from tests.support.scenarios import strict_config


class Base(nn.Module):
    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("shift", torch.randn(4))
        self.cached: Any = None

    def method(self, x: Tensor) -> Tensor:
        return self.linear(x) * 2 + self.shift

    @gearcache.cache_compile(config=strict_config())
    def run(self, x: Tensor) -> Tensor:
        return self.linear(x) * 2 + self.shift


class Derived(Base):
    def run(self, x: Tensor) -> Tensor:
        return super().run(x) + 100


class Twice(Base):
    """Overrides a decorated method by a decorated one, and uses both."""

    @gearcache.cache_compile(config=strict_config())
    def run(self, x: Tensor) -> Tensor:
        return self.linear(x) * 3 - self.shift

    def both(self, x: Tensor) -> Tensor:
        under: Tensor = super().run(x)
        return self.run(x) * 10 + under


def twice_again() -> type[Base]:
    """Return a class of the same name as its base, with a decorated method of the same name."""

    class Twice(globals()["Twice"]):  # type: ignore[misc, name-defined]
        @gearcache.cache_compile(config=strict_config())
        def run(self, x: Tensor) -> Tensor:
            return self.linear(x) * 7 + super().run(x)  # type: ignore[no-any-return, misc]

    Twice.__qualname__ = "Twice"
    return Twice


def _expected(net: Base, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return net.linear(x) * 2 + net.shift


def test_two_instances_share_an_entry_and_keep_their_own_weights(cache_dir: Path) -> None:
    first, second = Base(), Base()
    x = torch.randn(2, 4)
    for _ in range(2):
        assert torch.equal(first.run(x), _expected(first, x))
        assert torch.equal(second.run(x), _expected(second, x))
    assert first.run is not second.run
    assert first.run.entry_path == second.run.entry_path
    assert (first.run.stats.traces, second.run.stats.traces) == (1, 0)


@pytest.mark.parametrize("copied", [copy.copy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"])
def test_a_copy_answers_with_what_it_has_now(copied: Any, cache_dir: Path) -> None:
    net, x = Base(), torch.randn(2, 4)
    net.cached = gearcache.cache_compile(net.method, config=strict_config())
    net.run(x), net.cached(x)
    twin = copied(net)
    twin._modules, twin._buffers = dict(twin._modules), dict(twin._buffers)
    twin.linear, twin.shift = nn.Linear(4, 4), torch.randn(4)
    for _ in range(2):
        assert torch.equal(twin.run(x), _expected(twin, x))
        assert torch.equal(net.run(x), _expected(net, x))
    assert twin.run is twin.run
    assert twin.run is not net.run
    assert twin.run.function.__self__ is twin
    # The other one stays bound, as any bound method: only a deep copy or a pickle copies its module.
    is_own = twin.cached is not net.cached
    assert is_own == (copied is not copy.copy)
    assert torch.equal(twin.cached(x), _expected(twin if is_own else net, x))


def test_a_module_with_a_decorated_method_is_scripted_without_it(cache_dir: Path) -> None:
    class Doubled(nn.Linear):
        @gearcache.cache_compile(config=strict_config())
        def run(self, x: torch.Tensor) -> torch.Tensor:
            return self(x) * 2  # type: ignore[no-any-return]

    net, x = Doubled(4, 4), torch.randn(2, 4)
    assert torch.equal(net.run(x), net(x) * 2)
    assert torch.equal(torch.jit.script(net)(x), net(x))


def test_a_subclass_overrides_a_decorated_method_and_calls_super(cache_dir: Path) -> None:
    net = Derived()
    x = torch.randn(2, 4)
    for _ in range(2):
        assert torch.equal(net.run(x), _expected(net, x) + 100)
    assert torch.equal(Base.run(net, x), _expected(net, x))


def test_a_decorated_override_and_what_it_overrides_are_kept_apart(cache_dir: Path) -> None:
    x = torch.randn(2, 4)
    net = Twice()
    with torch.no_grad():
        own, under = net.linear(x) * 3 - net.shift, net.linear(x) * 2 + net.shift
    for _ in range(2):
        assert torch.equal(net.both(x), own * 10 + under)
        assert torch.equal(net.run(x), own)
    again = twice_again()()  # another class of this name has a method of its own
    with torch.no_grad():
        assert torch.equal(again.run.function(x), again.linear(x) * 7 + (again.linear(x) * 3 - again.shift))


def test_autocast_may_be_toggled_between_calls(cache_dir: Path) -> None:
    net, x = Base(), torch.randn(2, 4)
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found, expected = net.run(x), _expected(net, x)
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
        assert torch.equal(net.run(x), _expected(net, x))
    assert net.run.stats.traces == 2


class _OfPart(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Identity()
        self.weight = nn.Parameter(torch.ones(3))

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x) * self.weight


def test_a_later_launch_that_hides_parts_is_served_by_a_trace_of_its_own(cache_dir: Path) -> None:
    x = torch.arange(3.0)
    for hidden in ({}, {"part": nn.Softplus()}, {"weight": torch.full((3,), 2.0)}, {}):
        net = _OfPart()
        net.__dict__.update(hidden)
        served = gearcache.cache_compile(net.run, config=strict_config())
        with torch.no_grad():
            assert torch.equal(served(x), net.run(x))


class _OfDefaults(nn.Module):
    def run(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(4)


def test_a_graph_serves_calls_under_the_default_dtype_of_its_trace_alone(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(_OfDefaults().run, config=strict_config())
    for _ in range(2):
        for dtype in (torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            try:
                found = cached(torch.zeros(2, 4, dtype=torch.float32))
            finally:
                torch.set_default_dtype(torch.float32)
            assert found.dtype == dtype
    assert cached.stats.traces == 2
