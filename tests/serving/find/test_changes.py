"""A module that changes between calls: the next call sees it, without `.refresh()`."""

from __future__ import annotations

import collections
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.guards.watch import watch as watch_module
from gearcache.guards.watch.python_watch import PythonWatch
from gearcache.serving.find import variants
from tests.support.scenarios import strict_config

OFFSET = 1.0


def helper(x: Tensor) -> Tensor:
    return x + OFFSET


def _closed() -> Callable[[Tensor], Tensor]:
    bias = 0.75

    def add(x: Tensor) -> Tensor:
        return x + bias

    return add


def _pair_class() -> Any:
    return collections.namedtuple("Pair", ("first", "second"))


Pair = _pair_class()


class Left(nn.Module):
    scale = 2.0

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Right(nn.Module):
    """Has the very object that `Left` has: equal numbers of one file are one object."""

    scale = 2.0

    def forward(self, x: Tensor) -> Tensor:
        return x - self.scale


class Adapted(nn.Module):
    """A linear layer with a low-rank addition, as adapters wrap one."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base, self.down, self.up = base, nn.Linear(4, 2), nn.Linear(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class Child(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        self.dropout = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x * self.weight) if not self.training else x * self.weight + 1


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.child, self.linear, self.twin = Child(), nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("mean", torch.randn(4))
        self.scale, self.rates, self.pair, self.closed = 2.0, {"a": 3.0}, [nn.Linear(4, 4), 1.0], _closed()

    def run(self, x: Tensor) -> Tensor:
        y = helper(self.twin(self.linear(self.child(x)))) * self.scale + self.mean
        if getattr(self, "extra", None) is not None:
            y = y * self.extra
        y = self.closed(self.pair[0](y) * self.pair[1] + self.rates["a"])
        return y * 2 if os.getenv("GEARCACHE_TEST_CHANGES") else y  # it has a path of its own to `os.environ`


#: What tests/cases changes as well (attributes, containers, globals) is not among them, nor hooks of all modules
#: (tests/attaching/test_hooks.py).
CHANGES: dict[str, Callable[[Net, pytest.MonkeyPatch], Any]] = {
    "a parameter replaced": lambda net, patch: setattr(net.linear, "weight", nn.Parameter(torch.randn(4, 4))),
    "a parameter of another dtype": lambda net, patch: (net.double(), net.pair[0].double()),
    "a child wrapped": lambda net, patch: setattr(net, "linear", Adapted(net.linear)),
    "a hook": lambda net, patch: net.child.register_forward_hook(lambda module, args, out: out * 3),
    "forward on the instance": lambda net, patch: setattr(net.child, "forward", torch.tanh),
    "eval": lambda net, patch: net.eval(),
    "a class": lambda net, patch: setattr(net.linear, "__class__", Doubled),
    "all attributes": lambda net, patch: setattr(net.child, "__dict__", vars(net.child) | {"training": False}),
    "an attribute that was absent": lambda net, patch: setattr(net, "extra", 7.0),
    "a closure": lambda net, patch: setattr(net.closed.__closure__[0], "cell_contents", 4.0),  # type: ignore[index]
    "the environment": lambda net, patch: patch.setenv("GEARCACHE_TEST_CHANGES", "1"),
}

#: Those that the watch in Python meets.
FEW = ["a child wrapped", "the environment", "a class"]

IRRELEVANT: dict[str, Callable[[Net, pytest.MonkeyPatch], Any]] = {
    "another attribute": lambda net, patch: setattr(net, "unrelated", 1),
    "an equal attribute": lambda net, patch: setattr(net, "scale", float("2.0")),
    "another global": lambda net, patch: patch.setitem(globals(), "UNRELATED", 1),
    "another key": lambda net, patch: net.rates.update(other=6.0),
    "weights in place": lambda net, patch: nn.init.normal_(net.linear.weight),
    "a state dict copied": lambda net, patch: net.load_state_dict(Net().state_dict()),
    "a hook elsewhere": lambda net, patch: nn.Linear(1, 1).register_forward_hook(lambda module, args, out: out),
    "the environment": lambda net, patch: patch.setenv("GEARCACHE_TEST_UNRELATED", "1"),
    "a hook that came and went": lambda net, patch: net.child.register_forward_hook(lambda m, a, o: o).remove(),
}


@pytest.fixture(params=["installed", "python"])
def each_watch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr("gearcache.guards.watch.watch.watch_class", lambda: PythonWatch)
    else:
        assert watch_module.watch_class() is not PythonWatch


def _input(net: Net) -> Tensor:
    return torch.randn(2, 4, dtype=next(iter(net.child.parameters()), torch.empty(0)).dtype)


@pytest.mark.slow
@pytest.mark.usefixtures("each_watch")
def test_the_next_call_sees_every_change_and_its_end(cache_dir: Path) -> None:
    """One net after the other meets one change; the graphs of all of them lie in one cache.

    What both watches answer is compared in tests/guards/watch/test_watch.py: the one in Python meets few changes.
    """
    for name in FEW if watch_module.watch_class() is PythonWatch else CHANGES:
        change = CHANGES[name]
        net = Net()
        cached = gearcache.cache_compile(net.run, config=strict_config(max_variants=len(CHANGES)))
        with torch.no_grad():
            assert torch.equal(cached(x := _input(net)), net.run(x)), name
            with pytest.MonkeyPatch.context() as patch:
                change(net, patch)
                x = _input(net)
                expected = net.run(x)
                assert torch.equal(cached(x), expected), name
            x = _input(net)
            assert torch.equal(cached(x), net.run(x)), f"after {name}"


def test_a_change_is_seen_after_refresh_and_both_ways_are_kept(cache_dir: Path) -> None:
    net, x = Net(), torch.randn(2, 4)
    cached = gearcache.cache_compile(net.run, config=strict_config())
    with torch.no_grad():
        cached(x)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nn.Linear, "forward", lambda self, x: x * 4)
            cached.refresh()
            assert torch.equal(cached(x), net.run(x))
            assert cached.stats.traces == 2
        untouched = Net()
        again = gearcache.cache_compile(untouched.run, config=strict_config())
        assert torch.equal(again(x), untouched.run(x))
        assert again.stats.traces == 0


@pytest.mark.usefixtures("each_watch")
def test_what_does_not_matter_is_neither_looked_up_nor_traced_again(cache_dir: Path) -> None:
    net, x = Net(), torch.randn(2, 4)
    cached = gearcache.cache_compile(net.run, config=strict_config())
    with torch.no_grad():
        cached(x)
        before = (cached.stats.loads, cached.stats.traces)
        for name, change in IRRELEVANT.items():
            with pytest.MonkeyPatch.context() as patch:
                change(net, patch)
                assert torch.equal(cached(x), net.run(x)), name
            assert (cached.stats.loads, cached.stats.traces) == before, name


def test_functional_call_is_seen_and_its_end_too(cache_dir: Path) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        @gearcache.cache_compile(config=strict_config())
        def run(self, x: Tensor) -> Tensor:
            return torch.relu(self.linear(x))

        def forward(self, x: Tensor) -> Tensor:
            return self.run(x)  # type: ignore[no-any-return]

    net, x = Outer(), torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(3):
            weights = {"linear.weight": torch.randn(4, 4), "linear.bias": torch.randn(4)}
            assert torch.equal(net(x), torch.relu(net.linear(x)))
            found = torch.func.functional_call(net, weights, (x,))
            assert torch.equal(found, torch.relu(nn.functional.linear(x, *weights.values())))
        assert torch.equal(net(x), torch.relu(net.linear(x)))


def test_an_attribute_of_a_class_is_compared_though_another_class_has_the_very_same_object(cache_dir: Path) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = Left(), Right()

        def compute(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.left(x), self.right(x)

    assert Left.scale is Right.scale
    model, x = Both(), torch.ones(3, 4)
    cached: Any = gearcache.cache_compile(model.compute, config=strict_config())
    torch.testing.assert_close(cached(x), model.compute(x))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Left, "scale", 5.0)
        torch.testing.assert_close(cached(x), model.compute(x))
        again: Any = gearcache.cache_compile(Both().compute, config=strict_config())
        torch.testing.assert_close(again(x), model.compute(x))


class Outside(nn.Module):
    """Its layer is in none of its modules: the key does not tell its layout."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layers = [layer]

    def run(self, x: Tensor) -> Any:
        return self.layers[0](x)


@pytest.mark.parametrize(
    "others",
    [
        [nn.Linear(4, 4), nn.Linear(4, 16), nn.Linear(4, 4, bias=False)],
        [nn.Linear(4, 4), nn.Linear(4, 4).double(), nn.Linear(4, 4)],
    ],
)
def test_a_weight_outside_of_the_modules_is_compared_by_its_layout(others: list[nn.Linear], cache_dir: Path) -> None:
    served: Any = None
    for layer in others:
        for net in (Outside(layer), Outside(layer)):
            served = gearcache.cache_compile(net.run, config=strict_config())
            x = torch.ones(2, 4, dtype=layer.weight.dtype)
            assert torch.equal(served(x), net.run(x))
    same = Outside(nn.Linear(4, 4))
    served = gearcache.cache_compile(same.run, config=strict_config())
    assert torch.equal(served(torch.ones(2, 4)), same.run(torch.ones(2, 4)))
    assert served.stats.hits == 1
    same.layers[0] = nn.Linear(4, 16)
    assert torch.equal(served(torch.ones(2, 4)), same.run(torch.ones(2, 4)))


def _kind_of_factor() -> Any:
    class Factor:
        def times(self, x: Tensor) -> Tensor:
            return x * 2

    return Factor


class Settings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.settings = {"shift": 1}

    def run(self, x: Tensor, factor: Any) -> Tensor:
        return factor.times(x) + self.settings["shift"]


def test_what_a_graph_for_one_class_depends_on_stays_watched(cache_dir: Path) -> None:
    net, x = Settings(), torch.ones(2)
    one, other = _kind_of_factor(), _kind_of_factor()
    served: Any = gearcache.cache_compile(net.run, config=strict_config())
    for factor in (one(), other()):
        assert torch.equal(served(x, factor), net.run(x, factor))
    net.settings = {"shift": 1}  # nothing changes, but objects are others
    assert torch.equal(served(x, other()), net.run(x, other()))
    one.times = lambda self, x: x * 100
    for factor in (one(), other()):
        assert torch.equal(served(x, factor), net.run(x, factor))


class Applying(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def run(self, x: Tensor, function: Any) -> Any:
        return function(self.layer(x))


def test_a_function_that_is_new_at_each_call_loads_the_graphs_once(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = []
    load = variants.activate
    monkeypatch.setattr(variants, "activate", lambda *args, **named: loads.append(1) or load(*args, **named))
    net, x = Applying(), torch.ones(2, 4)
    served: Any = gearcache.cache_compile(net.run, config=strict_config())
    for _ in range(4):
        assert torch.equal(served(x, lambda y: y * 2), net.run(x, lambda y: y * 2))
    assert len(loads) == 1
    net.layer.weight = nn.Parameter(torch.randn(4, 4))
    assert torch.equal(served(x, lambda y: y * 2), net.run(x, lambda y: y * 2))


def test_results_are_of_the_present_class_if_an_equal_one_takes_its_place(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Net(nn.Module):
        def run(self, x: Tensor) -> Any:
            return Pair(x * 2, x + 1)

    cached, x = gearcache.cache_compile(Net().run, config=strict_config()), torch.ones(2)
    for _ in range(3):
        assert type(cached(x)) is Pair
        monkeypatch.setattr(sys.modules[__name__], "Pair", _pair_class())
    assert cached.stats.traces == 1
