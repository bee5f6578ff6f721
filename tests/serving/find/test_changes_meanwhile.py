"""The module is changed by another thread during a load, a trace or a compile: no graph of another state is stored."""

from __future__ import annotations

import collections
import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.variables.builder import VariableBuilder

import gearcache
from gearcache.building import tracer
from gearcache.errors import ModuleChanged
from gearcache.ge_cache import eager
from gearcache.guards.watch.facts import WatchedFacts
from gearcache.serving.find import basis, entry
from gearcache.serving.miss import unserved
from tests.support.sampled import sampled
from tests.support.scenarios import strict_config


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.scale, self.rates, self.table = 2.0, [1.0], {"a": 1.0}

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.weight * self.scale + len(self.rates) + self.weight.size(0)
        return y * 3 if "more" in self.table else y


CHANGES: list[Callable[[Net], Any]] = [
    lambda net: setattr(net, "scale", 3.0),
    lambda net: setattr(net.weight, "data", torch.full((2,), 7.0)),
    lambda net: net.rates.append(2.0),
    lambda net: net.table.update(more=1.0),
    lambda net: setattr(net, "weight", nn.Parameter(torch.full((1,), 7.0))),  # another layout
]
#: Where in a first call the other thread gets its turn.
MOMENTS = [(eager.EagerBackend, "load"), (entry.Entry, "read")]
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


def changing(patch: pytest.MonkeyPatch, moment: tuple[Any, str], turn: int, *changes: Callable[[], Any]) -> list[None]:
    """Make changes at turns one after the other, which come before and after each call of a function; returns the turns
    so far.
    """
    owner, name = moment
    original, turns = getattr(owner, name), list[None]()

    def take_turn() -> None:
        turns.append(None)
        if turn < len(turns) <= turn + len(changes):
            changes[len(turns) - turn - 1]()

    def during(*arguments: Any, **keywords: Any) -> Any:
        take_turn()
        found = original(*arguments, **keywords)
        take_turn()
        return found

    patch.setattr(owner, name, during)
    return turns


def test_graphs_of_two_states_do_not_answer_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module is in another state just while a second graph is loaded, and later for good."""
    net, x = Net(), torch.ones(2)
    there, back = functools.partial(setattr, net, "scale", 3.0), functools.partial(setattr, net, "scale", 2.0)
    stored = cached_compute(net, tmp_path)
    with torch.no_grad():
        stored(x)
        there()
        stored(x[:1])
        back()
        served = cached_compute(net, tmp_path)
        assert torch.equal(served(x), net.compute(x))
        with monkeypatch.context() as patch:
            changing(patch, (WatchedFacts, "begin"), 0, there)
            changing(patch, (basis, "joined"), 0, back)
            served(x[:1])
        assert (served.stats.traces, served.stats.loads, net.scale) == (0, 2, 2.0)
        for change in (there, back, there):
            change()
            for call in (x, x[:1]):
                assert torch.equal(served(call), net.compute(call))


class Settings:
    scale, mode = 2.0, "a"


class Inner(torch.nn.Module):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.rate


class Other(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.rate


class Traced(torch.nn.Module):
    """Reads much twice, so that one trace may see two states."""

    def __init__(self) -> None:
        super().__init__()
        self.settings, self.rates, self.table = Settings(), [1.0, 2.0], {"a": 1.0}
        self.inner = Inner(3.0)

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x * self.settings.scale)
        for rate in self.rates:
            y = y * rate + OFFSETS[0]
        y = y * 3 if "more" in self.table else y - self.table["a"]
        y = y * 5 if hasattr(self.settings, "extra") else y
        y = self.inner(y + len(self.rates) * OFFSETS[0])
        return y * self.settings.scale if self.settings.mode == "a" else y


OFFSETS = [1.0]
#: A change, and how it is undone.
EXCHANGES: dict[str, tuple[Callable[[Traced], Any], Callable[[Traced], Any]]] = {
    "attribute of an object": (
        lambda net: setattr(net.settings, "scale", 3.0),
        lambda net: setattr(net.settings, "scale", 2.0),
    ),
    "new attribute": (lambda net: setattr(net.settings, "extra", 1), lambda net: delattr(net.settings, "extra")),
    "global": (lambda net: OFFSETS.__setitem__(0, 7.0), lambda net: OFFSETS.__setitem__(0, 1.0)),
    "length": (lambda net: net.rates.insert(0, 5.0), lambda net: net.rates.pop(0)),
    "key": (lambda net: net.table.update(more=1.0), lambda net: net.table.pop("more")),
    "class": (lambda net: setattr(net.inner, "__class__", Other), lambda net: setattr(net.inner, "__class__", Inner)),
    "function": (lambda net: setattr(net.inner, "forward", torch.sin), lambda net: delattr(net.inner, "forward")),
    "hook": (
        lambda net: net.inner.register_forward_hook(lambda module, given, result: result + 1),
        lambda net: net.inner._forward_hooks.clear(),
    ),
}


@pytest.fixture
def another_thread() -> Iterator[None]:
    """A thread that does nothing: where a thread is alone, nobody can change what it reads."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    yield
    end.set()
    thread.join()


MET = (VariableBuilder, "_call_impl")


@pytest.mark.usefixtures("another_thread")
@pytest.mark.parametrize("name", sampled(EXCHANGES, kept=("attribute of an object", "length", "key", "class", "hook")))
def test_what_changes_during_a_trace_is_in_no_graph(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes once, or there and back, before or after some of the objects that the trace reads."""
    there, back = EXCHANGES[name]
    with monkeypatch.context() as patch, torch.no_grad():
        turns = changing(patch, MET, 0)
        cached_compute(Traced(), tmp_path)(torch.ones(2))
    tries = [*itertools.product(range(1, len(turns)), (False, True))]
    traces = set[int]()
    # Their number is odd, so that both ways take turns.
    for turn, is_undone in tries if os.environ.get("THOROUGH") else tries[:: (len(tries) // 9) | 1]:
        net, x, folder = Traced(), torch.ones(2), tmp_path / f"{turn} {is_undone}"
        served = cached_compute(net, folder)
        changes = [functools.partial(there, net), functools.partial(back, net)]
        with monkeypatch.context() as patch, torch.no_grad():
            changing(patch, MET, turn, *changes[: 1 + is_undone])
            served(x)
        traces.add(served.stats.traces)
        if not is_undone:
            back(net)
        for method in (served, cached_compute(net, folder)):
            for change in (lambda net: None, there, back):
                change(net)
                with torch.no_grad():
                    assert torch.equal(method(x), net.compute(x)), (turn, is_undone, method)
    assert max(traces) > 1, "some trace was repeated"


def cached_compute(net: Any, folder: Path) -> Any:
    return gearcache.cache_compile(net.compute, dynamic=False, cache_dir=folder, config=strict_config("eager"))


@pytest.mark.usefixtures("another_thread")
def test_what_a_trace_does_not_read_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = Traced(), torch.ones(2)
    served = cached_compute(net, tmp_path)
    counts = [lambda: setattr(net.settings, "requests", len(turns))] * 1000
    with monkeypatch.context() as patch, torch.no_grad():
        turns = changing(patch, MET, 0, *counts)
        assert torch.equal(served(x), net.compute(x))
    assert (served.stats.traces, served.stats.eager_reasons, len(turns) > 10) == (1, {}, True)


@pytest.mark.usefixtures("another_thread")
def test_while_each_trace_sees_a_change_the_method_itself_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    net, x = Traced(), torch.ones(2)
    served = cached_compute(net, tmp_path)
    monkeypatch.setattr(unserved, "PATIENCE", 1e6)
    writes = [lambda: setattr(net.settings, "scale", float(len(turns)))] * 10**5
    with monkeypatch.context() as patch, torch.no_grad():
        turns = changing(patch, MET, 0, *writes)
        for _ in range(unserved._MOST_CHANGES + 2):
            assert torch.equal(served(x), net.compute(x))
        with pytest.raises(ModuleChanged):
            served.warm(x)
    assert served.stats.eager_reasons == {"changed": unserved._MOST_CHANGES + 2}
    assert served.stats.traces == 3 * (unserved._MOST_CHANGES + 1), "no more traces for a while, but for `warm`"
    assert "`self.settings.scale` was written during the trace" in caplog.text


class Adapter(nn.Module):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(4, rank, bias=False), nn.Linear(rank, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.down(x)) / self.down.weight.shape[0]


class Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.adapters = nn.ModuleDict({"a": Adapter(2)})

    def run(self, x: Tensor, name: str) -> Tensor:
        return self.adapters[name](x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("rank", [16, 8], ids=["as the process before", "another one"])
def test_a_part_that_is_added_between_calls_is_not_served_by_a_graph_for_another(cache_dir: Path, rank: int) -> None:
    x = torch.randn(3, 4)
    for added_rank in (16, rank):
        net = Adapted()
        cached = gearcache.cache_compile(net.run, config=strict_config())
        torch.testing.assert_close(cached(x, "a"), net.run(x, "a"))
        net.adapters["b"] = Adapter(added_rank)
        torch.testing.assert_close(cached(x, "b"), net.run(x, "b"))
        torch.testing.assert_close(cached(x, "a"), net.run(x, "a"))
    assert cached.stats.traces == (0 if rank == 16 else 1)


class Ones(nn.Module):
    def run(self, x: Tensor) -> Tensor:
        return x + torch.ones(4)


@pytest.mark.parametrize("how", ["for good", "for a while", "each time"])
def test_a_default_dtype_that_another_thread_sets_is_not_stored(
    how: str, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For good, for its model; for a while, as transformers does while it loads one."""
    capture, captured = tracer.capture_method, list[None]()

    def set_elsewhere(dtype: torch.dtype) -> None:
        thread = threading.Thread(target=torch.set_default_dtype, args=(dtype,))
        thread.start()
        thread.join()

    def capture_meanwhile(*arguments: Any, **named: Any) -> Any:
        captured.append(None)
        if len(captured) > 1 and how != "each time":
            return capture(*arguments, **named)
        set_elsewhere(torch.bfloat16)
        try:
            return capture(*arguments, **named)
        finally:
            if how != "for good":
                set_elsewhere(torch.float32)

    net, x = Ones(), torch.zeros(3, 4, dtype=torch.float16)
    first, later = (gearcache.cache_compile(net.run, config=strict_config()) for _ in range(2))
    try:
        with monkeypatch.context() as patch:
            patch.setattr(tracer, "capture_method", capture_meanwhile)
            assert first(x).dtype == net.run(x).dtype == torch.float32  # of float16 and bfloat16
    finally:
        torch.set_default_dtype(torch.float32)
    assert first.stats.eager_reasons == ({"changed": 1} if how == "each time" else {})
    for cached in (first, later):
        assert cached(x).dtype == net.run(x).dtype


def _of_factor(factor: float) -> Any:
    class Config:
        def apply(self, x: Tensor) -> Tensor:
            return x * factor

    return Config()


class Applied(nn.Module):
    def run(self, x: Tensor, config: Any) -> Tensor:
        return config.apply(x)  # type: ignore[no-any-return]


def test_classes_of_one_name_are_told_apart_and_any_number_is_served(cache_dir: Path) -> None:
    net, x = Applied(), torch.randn(3, 4)
    cached = gearcache.cache_compile(net.run, config=strict_config())
    two, three = _of_factor(2.0), _of_factor(3.0)
    for config in (two, three, two, three, *(_of_factor(2.0) for _ in range(20))):
        assert torch.equal(cached(x, config), net.run(x, config))
    assert cached.stats.traces == 2
    (binding,) = cached._bindings
    assert len(binding.loaded.variants) <= 16


class Makes(collections.OrderedDict[str, Any]):
    """As `ACT2FN` of transformers: it holds classes, and makes an object at each read."""

    def __getitem__(self, key: str) -> Any:
        content = super().__getitem__(key)
        cls, named = content if isinstance(content, tuple) else (content, {})
        return cls(**named)


MADE = Makes(relu=nn.ReLU, leaky=(nn.LeakyReLU, {"negative_slope": 0.5}))


class Activated(nn.Module):
    kind = "leaky"

    def run(self, x: Tensor) -> Tensor:
        y: Tensor = MADE[self.kind](x)
        return y * 2


def test_a_table_that_makes_an_object_at_each_read_has_not_changed(cache_dir: Path) -> None:
    is_over = threading.Event()
    other = threading.Thread(target=is_over.wait)  # only beside one is it asked what changed
    other.start()
    try:
        net, x = Activated(), torch.randn(4)
        cached = gearcache.cache_compile(net.run, config=strict_config())
        assert torch.equal(cached(x), net.run(x))
        assert (cached.stats.traces, cached.stats.eager_calls) == (1, 0)
    finally:
        is_over.set()
        other.join()
