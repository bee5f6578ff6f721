"""A call that was refused is refused again without a trace, until something has changed or an attempt is due."""

from __future__ import annotations

import gc
import os
import signal
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.errors import CaptureError
from gearcache.serving.miss import likeness
from gearcache.serving.miss import refused_calls as refused
from tests.support.scenarios import strict_config


class Net(torch.nn.Module):
    def run(self, x: Tensor) -> Tensor:
        print("no graph")
        return x * 2


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused, "PATIENCE", 1e6)


def test_the_second_like_call_is_not_traced(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Net().run, config=strict_config())
    for size in (3, 3, 3):
        with pytest.raises(CaptureError, match="cannot be cached") as caught:
            cached(torch.ones(size))
    assert cached.stats.traces == 1
    if hasattr(caught.value, "add_note"):  # since Python 3.11
        assert "a like call was refused before" in "".join(caught.value.__notes__)
    with pytest.raises(CaptureError):
        cached(torch.ones(3, 4))
    assert cached.stats.traces == 2


def test_after_a_refresh_or_when_an_attempt_is_due_it_is_traced(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = gearcache.cache_compile(Net().run, config=strict_config())
    for traces in (1, 2, 3):
        with pytest.raises(CaptureError):
            cached(torch.ones(3))
        assert cached.stats.traces == traces
        if traces == 1:
            cached.refresh()
            monkeypatch.setattr(refused, "PATIENCE", 0.0)


class Base(torch.nn.Module):
    prints = False


class Moody(Base):
    """Forms no graph in one of several states."""

    def __init__(self) -> None:
        super().__init__()
        self.mode, self.child, self.names = SimpleNamespace(prints=False), torch.nn.Linear(4, 4), {"quiet"}

    def run(self, x: Tensor, y: Tensor, mode: Any) -> Tensor:
        is_loud = "loud" in self.names or not self.child.training or "GEARCACHE_TEST_LOUD" in os.environ
        if self.prints or self.mode.prints or mode.prints or is_loud or x is y or x._base is not None:
            print("no graph")
        return self.child(x) + y


def of_base(net: Moody, mode: Any) -> None:
    type(net).__mro__[1].prints = not Base.prints  # type: ignore[attr-defined]


def of_held_object(net: Moody, mode: Any) -> None:
    net.mode.prints = not net.mode.prints


def of_argument(net: Moody, mode: Any) -> None:
    mode.prints = not mode.prints


def of_set(net: Moody, mode: Any) -> None:
    net.names ^= {"loud"}


def of_training(net: Moody, mode: Any) -> None:
    net.child.train(not net.child.training)


def of_environment(net: Moody, mode: Any) -> None:
    if os.environ.pop("GEARCACHE_TEST_LOUD", None) is None:
        os.environ["GEARCACHE_TEST_LOUD"] = "1"


def hook(net: Moody, mode: Any) -> None:
    if net.child._forward_hooks:
        net.child._forward_hooks.clear()
    else:
        net.child.register_forward_hook(lambda *_: print("no graph"))


@pytest.mark.parametrize("change", [of_base, of_held_object, of_argument, of_set, of_training, of_environment, hook])
def test_a_state_that_forms_a_graph_is_served_after_one_that_does_not(
    cache_dir: Path, change: Callable[[Moody, Any], None]
) -> None:
    net, mode, x, y = Moody(), SimpleNamespace(prints=False), torch.ones(2, 4), torch.ones(2, 4)
    cached = gearcache.cache_compile(net.run, config=strict_config())
    change(net, mode)
    for _ in range(2):
        with pytest.raises(CaptureError):
            cached(x, y, mode)
    assert cached.stats.traces == 1
    change(net, mode)
    assert torch.equal(cached(x, y, mode), net.run(x, y, mode))


def test_arguments_that_are_apart_are_served_after_some_that_are_not(cache_dir: Path) -> None:
    net, mode, x = Moody(), SimpleNamespace(prints=False), torch.ones(2, 4)
    cached = gearcache.cache_compile(net.run, config=strict_config())
    for first, second in ((x, x), (torch.ones(4, 4)[:2], x)):
        with pytest.raises(CaptureError):
            cached(first, second, mode)
    assert torch.equal(cached(x, x.clone(), mode), net.run(x, x.clone(), mode))


class Picky(nn.Module):
    def as_real(self, x: Tensor) -> Tensor:
        return torch.view_as_real(x) * 2

    def never(self, x: Tensor, first: Any, second: Any = None) -> Tensor:
        print("no graph")
        return x * 2


def test_a_plain_tensor_is_served_after_a_lazy_conjugate_was_not(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Picky().as_real, config=strict_config(), dynamic=False)
    plain = (torch.ones(4) * 1j)[:2]  # a view, as a conjugate is
    for _ in range(2):
        with pytest.raises(RuntimeError, match="conjugated"):
            cached(plain.conj())
    assert cached.stats.traces == 1
    assert torch.equal(cached(plain), torch.view_as_real(plain) * 2)
    assert (cached.stats.traces, cached.stats.loads) == (2, 1)


class Pair(NamedTuple):
    first: Tensor
    second: torch.device


class Level(float):
    pass


class Output(OrderedDict[str, Tensor]):
    pass


def _new_objects(x: Tensor) -> dict[str, Any]:
    """Return arguments that are other objects at each call."""
    return {
        "size": x.shape,
        "device": torch.ones(1).device,
        "dtype": x.dtype,
        "slice": slice(int("300"), None),
        "range": range(int("300")),
        "member": signal.Signals(2),
        "named tuple": Pair(x.clone(), torch.ones(1).device),
        "result": torch.max(x[None], 1),
        "number": Level(2),
        "limits": torch.finfo(x.dtype),
        "mapping": Output(hidden=x.clone()),
        "in a key": {(int("300"), int("400")): 1.0},
    }


X = torch.ones(3)


def test_equal_arguments_are_alike_although_each_call_has_others(cache_dir: Path, subtests: pytest.Subtests) -> None:
    for name in _new_objects(X):
        with subtests.test(name):
            cached = gearcache.cache_compile(Picky().never, config=strict_config())
            for _ in range(3):
                with pytest.raises(CaptureError):
                    cached(X, _new_objects(X)[name])
            assert cached.stats.traces == 1


def test_equal_numbers_are_alike_whether_or_not_they_are_one_object(cache_dir: Path) -> None:
    cached, number = gearcache.cache_compile(Picky().never, config=strict_config()), int("300")
    for other in (number, int("300")):
        with pytest.raises(CaptureError):
            cached(X, number, other)
    assert cached.stats.traces == 1


def test_other_values_are_not_alike() -> None:
    with torch.inference_mode():
        of_inference = torch.ones(2) * 1j
    plain = torch.ones(2) * 1j
    tensors = [plain, plain.conj(), of_inference, (torch.ones(2, 2) * 1j).conj()[0].imag, torch.ones(2, 2)[:, 0]]
    assert len({likeness._outline(value) for value in tensors}) == len(tensors)
    assert len({likeness._outline(value, exact=False) for value in tensors[:3]}) == 3
    others = [slice(1), slice(2), range(1), range(2), Level(1), Level(2), 1.0, Pair(X, X.device), (X, X.device)]
    others += [X.shape, (3,), X.device, torch.device("meta"), Output(a=1), Output(a=2), {"a": 1}]
    assert len({likeness._outline(value) for value in others}) == len(others)


def test_new_objects_of_a_kind_cost_few_traces(cache_dir: Path) -> None:
    """Nobody knows what of them counts."""
    cached = gearcache.cache_compile(Picky().never, config=strict_config())
    for level in range(6):
        with pytest.raises(CaptureError):
            cached(X, SimpleNamespace(level=level))
    assert cached.stats.traces == 3
    with pytest.raises(CaptureError):
        cached(X, SimpleNamespace(is_other=True))
    assert cached.stats.traces == 4


class Counting(nn.Module):
    """Counts its calls, and keeps something of each."""

    calls_of_all = 0

    def __init__(self) -> None:
        super().__init__()
        self.child, self.calls, self.is_loud = nn.Linear(4, 4), 0, True
        self.sizes: list[int] = []
        self.seen: dict[int, set[int]] = {}

    def note(self) -> None:
        Counting.calls_of_all += 1
        self.calls += 1
        self.sizes.append(self.calls)
        self.seen[self.calls] = {self.calls}

    def run(self, x: Tensor) -> Tensor:
        if self.is_loud or self.child._forward_hooks:
            print("no graph")
        return x * 2


def quiet(net: Counting) -> None:
    net.is_loud = False


def without_hook(net: Counting) -> None:
    net.is_loud = False
    net.child._forward_hooks.clear()


@pytest.mark.parametrize(("is_loud", "change"), [(True, quiet), (False, without_hook)])
def test_a_module_that_counts_its_calls_costs_few_traces(
    cache_dir: Path, is_loud: bool, change: Callable[[Counting], None]
) -> None:
    net, x = Counting(), torch.ones(2, 4)
    net.is_loud = is_loud
    if not is_loud:
        net.child.register_forward_hook(lambda *_: None)
    cached = gearcache.cache_compile(net.run, config=strict_config())
    for _ in range(6):
        net.note()
        with pytest.raises(CaptureError):
            cached(x)
    assert cached.stats.traces == 3
    net.note()
    change(net)
    assert torch.equal(cached(x), x * 2)


class Decoder(nn.Module):
    """A decode step with a cache of 16 positions; torch rejects what lies beyond."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("states", torch.zeros(16, 8))

    def decode(self, x: Tensor, start_pos: int) -> Tensor:
        return self.linear(x) + self.states[start_pos]


REJECTED: list[tuple[Any, Any]] = [(torch.ones(1, 8), position) for position in range(16, 30)]
REJECTED += [(torch.ones(1, size), 3) for size in range(1, 5)] + [("x", 3), (torch.ones(1, 8), "a"), (None, 3)]


def test_calls_that_the_method_rejects_cost_few_traces(cache_dir: Path) -> None:
    method = Decoder().decode
    cached: Any = gearcache.cache_compile(method, config=strict_config(), dynamic=True)
    for _ in ("as a first call", "beside calls that are served"):
        for arguments in REJECTED:
            with pytest.raises((IndexError, RuntimeError, TypeError)) as expected:
                method(*arguments)
            with pytest.raises(type(expected.value)) as raised:
                cached(*arguments)
            assert str(raised.value) == str(expected.value)
        traces = cached.stats.traces
        assert traces <= 12
        x = torch.ones(1, 8)
        for position in (3, 3, 3, 5, 5, 7, 7):
            assert torch.equal(cached(x, position), method(x, position))
    assert cached.stats.calls > 0
    assert cached.stats.eager_reasons["exception"] >= 2 * len(REJECTED)


class Mode:
    def __init__(self, level: int) -> None:
        self.level = level


class ByMode(torch.nn.Module):
    def run(self, x: Tensor, mode: Mode) -> Tensor:
        if mode.level == 1:
            print("no graph")
        return x * mode.level


def at_address(address: int, level: int) -> Mode:
    """Return an object at the address of one that is gone."""
    others = []
    for _ in range(10_000):
        others.append(Mode(level))
        if id(others[-1]) == address:
            return others[-1]
    pytest.skip("the address is not used again")


def test_another_object_at_the_address_of_a_refused_one_is_traced(cache_dir: Path) -> None:
    cached, x = gearcache.cache_compile(ByMode().run, config=strict_config()), torch.ones(3)
    mode = Mode(1)
    address = id(mode)
    for _ in range(3):
        with pytest.raises(CaptureError):
            cached(x, mode)
    assert cached.stats.traces < 3
    del mode
    gc.collect()
    assert torch.equal(cached(x, at_address(address, 2)), x * 2)
