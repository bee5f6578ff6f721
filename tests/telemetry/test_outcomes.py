"""What became of calls that no graph of their own sizes has served: padded, eager, refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import gearcache
from gearcache.cache.admin.tally import count_misses, misses
from gearcache.cache.layout import Layout
from gearcache.guards.evidence.reason import Reason
from gearcache.telemetry.counters import EAGER_REASONS, Counters, eager_calls
from gearcache.telemetry.gear_use import PADDED, gear_calls
from gearcache.telemetry.history import History
from tests.support.at_once import at_once
from tests.support.scenarios import strict_config

GEARS = {"x": {0: [2, 4]}}


class Net(nn.Module):
    def double(self, x: Tensor, by: int = 2) -> Tensor:
        return x * by

    def raises(self, x: Tensor) -> Tensor:
        if x.size(0) == 3:
            raise ValueError("three rows")
        return x + 1


def test_calls_outside_the_gears_are_counted_by_what_became_of_them(cache_dir: Path) -> None:
    before = gear_calls().get(("Net.double", PADDED), 0)
    padded = gearcache.cache_compile(
        Net().double, gears=GEARS, config=strict_config(on_miss="pad", pad_values={"x": 0.0})
    )
    for rows in (2, 3, 3, 1):
        padded(torch.ones(rows, 4))
    assert (padded.stats.calls, padded.stats.padded_calls, padded.stats.eager_calls) == (4, 3, 0)
    with pytest.raises(gearcache.UnknownGear):
        padded(torch.ones(5, 4))
    assert padded.stats.refused_errors == {"UnknownGear": 1}
    assert gear_calls()["Net.double", PADDED] == before + 3
    del padded
    assert gear_calls()["Net.double", PADDED] == before + 3, "the sum never goes down"

    eager = gearcache.cache_compile(Net().double, gears=GEARS, config=strict_config(on_miss="eager"))
    for rows in (2, 3, 5):
        eager(torch.ones(rows, 4))
    assert (eager.stats.calls, eager.stats.eager_reasons) == (3, {"on_miss": 2})


def test_what_the_method_itself_raises_is_no_refusal(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Net().raises, config=strict_config(), dynamic=False)
    with pytest.raises(ValueError, match="three rows"):
        cached(torch.ones(3, 4))
    with pytest.raises(TypeError, match="argument"):
        cached()
    assert cached.stats.refused_calls == 0


class Seen(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


def test_eager_calls_have_a_reason(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = gearcache.cache_compile(
        Net().double, config=gearcache.CompilerConfig(backend="eager", max_variants=1), dynamic=False
    )
    x = torch.ones(2, 4)
    cached(x)
    cached(x, 3)
    with torch.compiler.set_stance("force_eager"):
        cached(x)
    with Seen():
        cached(x)
    assert cached.stats.eager_reasons == {"max_variants": 1, "stance": 1, "function mode": 1}
    cached.refresh()

    def fail(*args: object) -> None:
        raise OSError("no such device")

    monkeypatch.setattr("gearcache.serving.find.binding.Binding.prepare", fail)
    for _ in range(5):
        assert torch.equal(cached(x), x * 2)
    assert cached.stats.eager_reasons["fault"] == 5
    assert set(cached.stats.eager_reasons) <= set(EAGER_REASONS)
    assert cached.stats.calls == cached.stats.eager_calls + 1


def test_a_call_from_many_threads_is_counted_once(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Net().double, gears=GEARS, config=strict_config(on_miss="eager"))
    x = torch.ones(3, 4)
    cached(x)
    before = eager_calls()["Net.double", "on_miss"]
    at_once(*[lambda: [cached(x) for _ in range(50)]] * 8)
    assert cached.stats.eager_calls == 401
    assert eager_calls()["Net.double", "on_miss"] == before + 400


def test_statistics_are_plain_data_for_json(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Net().double, gears=GEARS, config=strict_config())
    assert json.loads(json.dumps(cached.stats.to_dict()))["calls"] == 0
    cached(torch.ones(2, 4))
    cached(torch.ones(4, 4))
    with pytest.raises(gearcache.UnknownGear):
        cached(torch.ones(3, 4))
    plain = json.loads(json.dumps(cached.stats.to_dict()))
    assert plain["gears"] == {"x.size(0)=2": 1, "x.size(0)=4": 1}
    assert plain["shapes"] == [{"shape": [2], "calls": 1}, {"shape": [3], "calls": 1}, {"shape": [4], "calls": 1}]
    assert plain["refused_errors"] == {"UnknownGear": 1}
    assert plain["miss_reasons"] == list(cached.stats.miss_reasons)
    named = {name for name, member in vars(gearcache.Stats).items() if isinstance(member, property)}
    described = {"method", "full_name", "dims", "declared"}
    assert set(plain) - described == named - {"reasons"}, "`reasons` holds objects, whose texts are `miss_reasons`"


def test_any_number_of_padded_sizes_takes_bounded_memory_and_all_are_counted(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gearcache.serving.miss.padded_calls.MAX_PADDED", 4)
    padded = gearcache.cache_compile(
        Net().double, gears={"x": {0: [40]}}, config=strict_config(on_miss="pad", pad_values={"x": 0.0})
    )
    for _ in range(2):
        for rows in range(10, 40):
            padded(torch.ones(rows, 4))
    assert (padded.stats.calls, padded.stats.padded_calls) == (60, 60)
    (binding,) = padded._bindings
    assert binding.shapes.counts().calls == {(rows,): 2 for rows in range(10, 40)}
    assert len(binding.shapes._counted._counted[0]) <= 6


def test_misses_and_faults_that_lead_to_no_compile_do_not_pile_up(tmp_path: Path) -> None:
    history = History("Net.run", "key", str(tmp_path), Counters(), strict=False)
    for number in range(1200):
        history.miss(Reason("arguments", f"argument `x` is {number}"), kind="arguments")
        history.fault(OSError(28, "No space left on device", f"/tmp/{number}"))
        history.tell()
    assert len(history.uncounted) == 1
    assert len(history._logged) < 1000
    layout = Layout(tmp_path)
    layout.bucket.mkdir()
    count_misses(layout, "Net.run", history.uncounted.elements())
    assert misses(layout) == {"Net.run": {"arguments": 1200}}
