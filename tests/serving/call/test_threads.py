"""Several threads at once: first calls, eager and compiled work beside them, interrupts and forks."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.serving.miss import refused_calls as refused
from gearcache.threads import waits_end_after
from tests.support.at_once import at_once
from tests.support.relaunch import run_python
from tests.support.scenarios import strict_config

OPERATOR = "gearcache_threads::double"


@pytest.fixture(scope="module", autouse=True)
def operator() -> None:
    """An operator whose fake says when it runs: under Dynamo, and again while the graph is recorded."""

    @torch.library.custom_op(OPERATOR, mutates_args=())
    def double(x: Tensor) -> Tensor:
        return x * 2

    @double.register_fake
    def _(x: Tensor) -> Tensor:
        print("fake")
        return torch.empty_like(x)


class Net(nn.Module):
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.factor = factor

    def doubled(self, x: Tensor) -> Tensor:
        return torch.ops.gearcache_threads.double(self.linear(x)) + self.factor

    def scaled(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x)) * self.factor

    def again(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


@contextmanager
def at_each_fake(do: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Call `do(number)` whenever the fake of the operator runs."""
    times: list[str] = []

    class Output(io.StringIO):
        def write(self, text: str) -> int:
            if text == "fake":
                times.append(text)
                do(len(times))
            return len(text)

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Output())
        yield times


def cached(method: Callable[..., Any], **options: Any) -> Any:
    return gearcache.cache_compile(method, config=strict_config(), **options)


def assert_right(method: Any, eager: Callable[..., Tensor], size: int = 3) -> None:
    x = torch.randn(size, 4)
    with torch.no_grad():
        assert torch.equal(method(x), eager(x))


@pytest.mark.slow
def test_first_calls_of_many_methods_beside_eager_and_compiled_work_are_all_right(tmp_path: Path) -> None:
    found = run_python("from tests.support.thread_actors import main; main()", str(tmp_path), "mixed", compiles=True)
    assert found["errors"] == []
    assert found["misses"] == [1] * len(found["misses"]), "no evidence may break because another thread traces"
    assert min(found["beside"]) > 0


def test_what_is_exchanged_for_a_trace_is_not_seen_by_other_threads(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._dynamo.variables import builder

    net, other = Net(), nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = torch.compile(other, backend="eager")
    x = torch.randn(3, 4)
    with torch.no_grad():
        expected = compiled(x)
    call, find = nn.Module.__call__, nn.Module.__getattr__
    seen: list[Any] = []

    def look() -> None:
        repr(x)  # takes all modes before dispatch off, and puts them back
        with torch.no_grad():
            seen.append(torch.equal(compiled(x), expected))
        seen.append(nn.Module.__call__ is call and nn.Module.__getattr__ is find)
        seen.append(builder.is_from_global_source(torch._dynamo.source.GlobalSource("g")))

    def beside(number: int) -> None:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join(60)

    method = cached(net.doubled)
    with at_each_fake(beside, monkeypatch) as times:
        method(x)
    assert len(times) >= 2, "once under Dynamo, once in the recording"
    assert seen == [True] * (3 * len(times))
    assert_right(method, net.doubled)


def test_calls_and_loads_do_not_wait_for_the_trace_of_another_method(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net()
    loaded, stored = cached(net.scaled), cached(net.again)
    assert_right(loaded, net.scaled)
    assert_right(stored, net.again)
    relaunched = cached(net.again)
    is_traced, go_on = threading.Event(), threading.Event()

    def hold(number: int) -> None:
        is_traced.set()
        assert go_on.wait(120)

    slow = cached(net.doubled)
    with at_each_fake(hold, monkeypatch):
        thread = threading.Thread(target=assert_right, args=(slow, net.doubled))
        thread.start()
        assert is_traced.wait(60)
        try:
            assert_right(loaded, net.scaled)
            assert_right(relaunched, net.again)
        finally:
            go_on.set()
            thread.join(120)
    assert (relaunched.stats.hits, relaunched.stats.traces) == (1, 0)
    assert slow.stats.calls == 1


@pytest.mark.parametrize("on_miss", ["compile", "background"])
def test_no_lock_of_a_method_is_held_while_a_listener_runs(cache_dir: Path, on_miss: str) -> None:
    net, x = Net(), torch.randn(3, 4)
    cached(net.scaled)(x)  # stored, so that nothing is built beside the call
    method = gearcache.cache_compile(net.scaled, config=strict_config(on_miss=on_miss))
    kinds: list[str] = []

    def refresh() -> None:
        with waits_end_after(0.0):
            method.refresh()

    def listen(event: gearcache.Event) -> None:
        at_once(refresh)
        kinds.append(event.kind)

    remove = gearcache.add_listener(listen)
    try:
        assert_right(method, net.scaled)
    finally:
        remove()
    assert kinds == ["load", "hit"]


def test_what_was_prepared_is_given_although_the_method_is_refreshed_as_soon_as_its_lock_is_free(
    cache_dir: Path,
) -> None:
    method = cached(Net().scaled)
    remove = gearcache.add_listener(lambda event: method.refresh())
    try:
        binding = method.prepare(method.call_of((torch.randn(3, 4),), {}))
    finally:
        remove()
    assert binding is not None
    assert binding.loaded.gears


def test_a_trace_that_ends_in_an_exception_leaves_the_process_able_to_compile(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused, "PATIENCE", 0.0)
    net = Net()
    method = cached(net.doubled, dynamic=False)  # or it is traced again with sizes in place of symbols
    count = 0
    while True:  # at every point where the operator's fake runs
        count += 1

        def stop(number: int, at: int = count) -> None:
            if number == at:
                raise KeyboardInterrupt("stopped")

        with at_each_fake(stop, monkeypatch) as times, suppress(KeyboardInterrupt):
            method(torch.randn(3, 4))
        if len(times) < count:
            break
    assert count > 2
    assert_right(method, net.doubled)
    fresh = cached(net.again)
    assert_right(fresh, net.again)
    assert_right(torch.compile(net.scaled, backend="eager"), net.scaled)


def test_a_process_can_compile_after_ctrl_c_at_any_moment(tmp_path: Path) -> None:
    for attempt in range(3):
        try:
            found = run_python(
                "from tests.support.thread_actors import main; main()", str(tmp_path), "interrupted", compiles=True
            )
            break
        except (
            AssertionError
        ) as error:  # torch's C++ ends the process where an interrupt strikes in a callback of its own
            if attempt == 2 or "terminate called" not in str(error):
                raise
    assert found["wrong"] == 0
    assert found["interrupted"] >= found["moments"] // 4
    assert found["graphs"] == found["moments"] + 1, "graphs ran"


def test_a_forked_child_can_call_and_compile_whatever_its_parent_was_doing(tmp_path: Path) -> None:
    found = run_python("from tests.support.thread_actors import main; main()", str(tmp_path), "forked", compiles=True)
    assert found == {"loaded": "right", "new": "right", "same": "right", "compile": "right", "parent": "right"}
