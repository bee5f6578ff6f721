"""A module that switches to and fro, as between adapters: its graphs are kept, and serve again without a lookup."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.building.tracer import Tracer
from gearcache.errors import CaptureError, ModuleChanged
from gearcache.guards.access import Scope
from gearcache.serving.call.method import CachedMethod
from gearcache.serving.find import bindings
from tests.support.scenarios import strict_config


class Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base, self.active, self.scale = nn.Linear(4, 4), "a", 1.0
        self.adapters = nn.ModuleDict({name: nn.Linear(4, 4) for name in "abc"})

    def run(self, x: Tensor) -> Tensor:
        y = self.base(x)
        return y if self.active is None else y + self.adapters[self.active](x) * self.scale


X = torch.arange(8.0).reshape(2, 4) / 8


def made(net: Adapted | None = None, **options: Any) -> tuple[Adapted, Any]:
    """Return a module and its cached method."""
    net = net or Adapted()
    return net, gearcache.cache_compile(net.run, config=strict_config(**options))


def switched(net: Adapted, cached: Any, names: str, x: torch.Tensor = X) -> int:
    """Switch to one adapter after the other, and call; returns the loads so far."""
    for name in names:
        net.active = name
        with torch.no_grad():
            assert torch.equal(cached(x), net.run(x))
    return int(cached.stats.loads)


def test_adapters_are_switched_without_a_lookup(cache_dir: Path) -> None:
    net, cached = made()
    loads = switched(net, cached, "abc")
    for name in "abcabcbcacab":
        for rows in (2, 3, 1):
            switched(net, cached, name, X[:1].expand(rows, 4))
    assert cached.stats.traces <= 9
    assert cached.stats.loads <= loads + 6, "sizes are looked up once for each adapter"
    before = cached.stats.loads
    assert switched(net, cached, "cba" * 3) == before


def test_a_state_without_a_graph_is_none_that_returns(cache_dir: Path) -> None:
    class Refused(Adapted):
        def run(self, x: Tensor) -> Tensor:
            return x if self.active == "c" and bool(x.sum() > 0) else super().run(x)

    net, cached = made(Refused())
    for name in "acabcbacab":
        if name == "c":
            net.active = name
            with torch.no_grad(), pytest.raises(CaptureError):
                cached(X)
        else:
            switched(net, cached, name)
    assert cached.stats.loads == 2


def test_weights_that_were_replaced_are_not_kept(cache_dir: Path) -> None:
    (net, cached), x = made(backend="inductor"), torch.randn(2, 4)
    with torch.no_grad():
        for name in ("a", "b"):
            net.active = name
            cached(x)
        gone = [weakref.ref(net.base.weight), weakref.ref(net.adapters["a"].weight)]
        net.load_state_dict({name: value.clone() for name, value in net.state_dict().items()}, assign=True)
        assert torch.allclose(cached(x), net.run(x))
        gc.collect()
        assert [reference() for reference in gone] == [None, None]
        net.active = "a"
        assert torch.allclose(cached(x), net.run(x))


def test_a_call_that_compiles_while_another_thread_switches_is_answered(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, free = Adapted(), Tracer.free
    cached: Any = gearcache.cache_compile(net.run, config=strict_config(), dynamic=False)

    def switching(self: Tracer) -> Any:
        capture = free(self)
        net.active = "b"
        return capture

    switched(net, cached, "ba")
    with torch.no_grad():
        with monkeypatch.context() as patch:
            patch.setattr(Tracer, "free", switching)
            x = torch.randn(3, 4)
            assert torch.equal(cached(x), net.run(x))
            net.active = "a"
            with pytest.raises(ModuleChanged, match=r"`self.active`: constant was 'a', is now 'b'"):
                cached.warm(torch.randn(5, 4))
        assert cached.stats.eager_reasons == {"changed": 1}
        traces, net.active = cached.stats.traces, "a"
        assert torch.equal(cached(x), net.run(x))
        assert cached.stats.traces == traces, "what was made is stored"


def test_few_states_are_kept(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bindings, "_MOST_SET_ASIDE", 1)
    net, cached = made()
    loads = switched(net, cached, "abcabc")
    assert switched(net, cached, "bcbcbc") == loads


def test_graphs_that_are_gone_leave_nothing_but_their_counts(cache_dir: Path) -> None:
    net, cached = made()
    for _ in range(20):
        net.base = nn.Linear(4, 4)
        switched(net, cached, "a")
    gc.collect()
    net.base = nn.Linear(4, 4)
    cached(X)
    graphs, _ = cached._declared.use._graphs._counted
    assert len(graphs) <= 2
    assert sum(cached.stats.gears.values()) == 21


def _changes(net: Adapted, chance: random.Random) -> None:
    """Change one thing of a module, mostly to and fro."""
    changes: list[Any] = [
        lambda: setattr(net, "active", chance.choice(["a", "b", "c", None])),
        lambda: setattr(net, "active", chance.choice(["a", "b"])),
        lambda: setattr(net, "scale", chance.choice([1.0, 2.0])),
        lambda: setattr(net.adapters[chance.choice("abc")], "weight", nn.Parameter(torch.randn(4, 4))),
        lambda: setattr(net.base.weight, "data", torch.randn(4, 4)),
        lambda: nn.init.normal_(net.base.weight),
        lambda: net.adapters.update({chance.choice("abc"): nn.Linear(4, 4)}),
        lambda: net.train(chance.random() < 0.5),
        lambda: (net.double(), net.float()),
        lambda: None,
    ]
    chance.choice(changes)()


def test_random_switches_give_what_the_method_gives(cache_dir: Path) -> None:
    chance = random.Random(3)
    net, cached = made(max_variants=60)
    with torch.no_grad():
        for _ in range(400):
            _changes(net, chance)
            x = torch.randn(chance.choice([2, 3]), 4)
            assert torch.equal(cached(x), net.run(x))


def test_threads_that_call_while_one_switches_get_one_of_both(cache_dir: Path) -> None:
    (net, cached), x = made(), X
    expected, wrong = {}, []
    with torch.no_grad():
        for name in "ab":
            net.active = name
            expected[name] = cached(x)
    end = threading.Event()

    def call() -> None:
        with torch.no_grad():
            while not end.is_set():
                found = cached(x)
                if not any(torch.equal(found, each) for each in expected.values()):
                    wrong.append(found)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(300):
        net.active = "ab"[turn % 2]
        end.wait(0.002)
    end.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert cached.stats.traces == 2


def test_a_call_that_takes_a_state_back_runs_it_though_another_thread_begins_anew(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, cached = made()
    take_back = CachedMethod._take_back

    def followed_by_a_refresh(self: CachedMethod) -> Any:
        dispatch = take_back(self)
        if dispatch:
            self.refresh()
        return dispatch

    switched(net, cached, "ab")
    monkeypatch.setattr(CachedMethod, "_take_back", followed_by_a_refresh)
    switched(net, cached, "aa")


def test_a_state_that_gets_a_binding_while_it_is_compared_holds() -> None:
    added: dict[str, Any] = {}

    class Growing:
        def holds(self) -> bool:
            added[str(len(added))] = Growing()
            return True

        def has_weights(self, _: Any) -> bool:
            return self.holds()

    added["first"] = Growing()
    state = bindings.ModuleState(added, added["first"], len)
    assert state.holds()
    assert state.has_weights(Scope({}, {}))
