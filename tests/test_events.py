"""Events: what a listener hears of lookups, compiles, loads, publishes and faults, and the statistics of them."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.telemetry.gear_use import gear_calls
from tests.support.scenarios import strict_config


class Net(nn.Module):
    def __init__(self, factor: int = 2) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.factor = factor

    def decode(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.factor


def cached(net: Net, **options: object) -> gearcache.api.CachedMethod:
    return gearcache.cache_compile(net.decode, config=strict_config(**options), gears={"x": {0: [2, 4]}})


@pytest.fixture
def heard(cache_dir: Path) -> Iterator[list[gearcache.Event]]:
    events: list[gearcache.Event] = []
    remove = gearcache.add_listener(events.append)
    yield events
    remove()


def kinds(events: list[gearcache.Event]) -> list[str]:
    return [event.kind for event in events]


def test_a_cold_call_is_a_miss_a_trace_a_compile_per_gear_a_publish_and_a_load(heard: list[gearcache.Event]) -> None:
    method = cached(Net())
    method(torch.randn(2, 4))
    assert kinds(heard) == ["miss", "trace", "compile", "compile", "publish", "load"]
    miss, trace, first, second, publish, load = heard
    assert {event.method for event in heard} == {"Net.decode"}
    assert miss.reason == "absent"
    assert trace.seconds > 0
    assert [first.gear, second.gear] == ["x.size(0)=2", "x.size(0)=4"]
    assert first.bytes > 0
    assert publish.entry.partition("-")[2] in (method.entry_path or "")
    assert publish.bytes == load.bytes == first.bytes == second.bytes, "both gears have one graph, stored once"
    assert load.gears == (first.gear, second.gear)
    assert method.stats.bytes_stored == publish.bytes
    assert method.stats.trace_seconds == trace.seconds
    assert method.stats.compile_seconds == first.seconds + second.seconds


def test_a_relaunch_is_a_load_and_a_hit_and_nothing_is_logged_above_info(
    heard: list[gearcache.Event], caplog: pytest.LogCaptureFixture
) -> None:
    net = Net()
    with caplog.at_level(logging.DEBUG, "gearcache"):
        cached(net)(torch.randn(2, 4))
        heard.clear()
        method = cached(net)
        for _ in range(3):
            method(torch.randn(4, 4))
    assert {record.levelname for record in caplog.records} <= {"DEBUG", "INFO"}
    assert kinds(heard) == ["load", "hit"]
    assert heard[0].seconds == method.stats.load_seconds > 0
    assert heard[0].bytes == method.stats.bytes_loaded > 0


@pytest.mark.parametrize(
    "break_it, reason",
    [
        pytest.param(lambda net, entry: setattr(net, "factor", 3), "evidence", id="attribute"),
        pytest.param(lambda net, entry: entry.write_bytes(b"torn"), "corrupt", id="manifest"),
    ],
)
def test_a_miss_names_its_reason(heard: list[gearcache.Event], break_it: object, reason: str) -> None:
    net = Net()
    method = cached(net)
    method(torch.randn(2, 4))
    break_it(net, Path(str(method.entry_path)))
    heard.clear()
    again = cached(net)
    again(torch.randn(2, 4))
    assert [event.reason for event in heard if event.kind == "miss"] == [reason]
    assert again.stats.miss_reasons == tuple(event.detail for event in heard if event.kind == "miss")


def test_every_reason_and_kind_is_documented() -> None:
    from gearcache.cache.result import MissReason
    from gearcache.events import KINDS, MISS_REASONS, Kind
    from gearcache.serving.find.variants import _TELLING

    assert {reason.value for reason in MissReason} | set(_TELLING) == set(MISS_REASONS)
    assert set(KINDS) == set(Kind.__args__)


def test_a_fault_is_an_event(heard: list[gearcache.Event], cache_dir: Path) -> None:
    cache_dir.write_text("a file where the cache should be")
    method = cached(Net())
    method.parameters.config.strict = False
    method(torch.randn(2, 4))
    assert "fault" in kinds(heard)
    assert method.stats.faults == kinds(heard).count("fault")


def test_a_gear_that_cannot_be_compiled_is_an_event(
    heard: list[gearcache.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gearcache.ge_cache.eager import EagerBackend

    def broken(*args: object) -> None:
        raise RuntimeError("the compiler is out of order")

    monkeypatch.setattr(EagerBackend, "compile", broken)
    with pytest.raises(gearcache.CompileError, match="out of order"):
        cached(Net())(torch.randn(2, 4))
    failed = [event for event in heard if event.kind == "compile_failed"]
    assert [event.gear for event in failed] == ["x.size(0)=2", "x.size(0)=4"]
    assert "out of order" in failed[0].detail


def test_a_listener_that_raises_breaks_no_call_and_one_that_is_removed_hears_nothing(
    cache_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: gearcache.Event) -> None:
        raise RuntimeError("listener")

    heard: list[gearcache.Event] = []
    first, second, third = (gearcache.add_listener(each) for each in (heard.append, broken, heard.append))
    first()
    first()
    try:
        with caplog.at_level(logging.ERROR, "gearcache"):
            cached(Net())(torch.randn(2, 4))
    finally:
        second()
        third()
    assert "a listener failed on the event" in caplog.text
    assert kinds(heard).count("publish") == 1


def test_what_cannot_be_called_is_no_listener() -> None:
    with pytest.raises(TypeError, match="not a str"):
        gearcache.add_listener("print")  # type: ignore[arg-type]


def test_calls_per_gear_survive_a_refresh_and_the_model(cache_dir: Path) -> None:
    before = gear_calls().get(("Net.decode", "x.size(0)=2"), 0)
    method = cached(Net())
    method(torch.randn(2, 4))
    method.refresh()
    method(torch.randn(2, 4))
    assert method.stats.gears == {"x.size(0)=2": 2, "x.size(0)=4": 0}
    assert gear_calls()["Net.decode", "x.size(0)=2"] == before + 2
    del method
    gc.collect()
    assert gear_calls()["Net.decode", "x.size(0)=2"] == before + 2
