"""Options at work, `max_variants` and `validate`; and which of several variants explains a miss."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch

import gearcache
from gearcache.errors import TooManyVariants
from gearcache.serving.miss import background
from tests.scenarios.arguments import Net
from tests.support.scenarios import strict_config


def test_calls_beyond_the_limit_of_variants_run_without_a_graph_and_the_others_stay(
    cache_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net, x = Net(), torch.ones(2, 4)
    cached = gearcache.cache_compile(net.scalar, config=strict_config(max_variants=2), dynamic=False)
    cached(x, 1.5), cached(x, 2.5)
    for number in (3.5, 4.5, 3.5):
        assert torch.equal(cached(x, number), x * number)
    assert len(caplog.messages) == 1
    assert "max_variants=2" in caplog.text
    assert "because `value` is 3.5; the 2 stored traces are for 1.5, 2.5" in caplog.text
    assert (cached.stats.compiles, cached.stats.eager_calls) == (2, 3)
    assert torch.equal(cached(x, 2.5), x * 2.5)
    assert torch.equal(cached(x, 1.5), x * 1.5)
    assert cached.stats.eager_calls == 3


def test_the_caller_of_a_method_with_gears_gets_no_error_for_the_limit_of_variants(
    cache_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net, x = Net(), torch.ones(2, 4)
    options = {"gears": {"x": {0: [2]}}, "constants": ["value"]}
    cached = gearcache.cache_compile(net.scalar, config=strict_config(max_variants=2), **options)
    cached(x, 1.5), cached(x, 2.5)
    with pytest.raises(TooManyVariants, match="max_variants=2"):
        cached.warm(x, 3.5)
    for _ in range(2):
        assert torch.equal(cached(x, 3.5), x * 3.5)
    assert caplog.text.count("max_variants=2") == 1
    assert cached.stats.eager_reasons == {"max_variants": 2}
    assert torch.equal(cached(x, 2.5), x * 2.5)


class Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2, 4))

    def scalar(self, x: torch.Tensor, value: float) -> torch.Tensor:
        return x.to(self.weight.dtype) * self.weight * value


@pytest.mark.parametrize("on_miss", ["compile", "background"])
def test_an_entry_that_is_full_leaves_that_of_another_state_of_the_module_empty(cache_dir: Path, on_miss: str) -> None:
    module, x = Weighted(), torch.ones(2, 4)
    config = strict_config(max_variants=1, on_miss=on_miss)
    cached = gearcache.cache_compile(module.scalar, config=config, dynamic=False, constants=["value"])
    for dtype in (torch.float32, torch.float64):
        module.to(dtype)
        for number in (1.5, 2.5):
            for _ in range(2):
                assert torch.equal(cached(x, number), module.scalar(x, number))
                background.wait_for_slot()
    assert cached.stats.loads == 2
    assert cached.stats.eager_reasons["max_variants"] >= 2


class Doubling:
    def read(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Adding:
    def read(self, x: torch.Tensor) -> torch.Tensor:
        return x + 2


class Reader(torch.nn.Module):
    def run(self, x: torch.Tensor, cache: Doubling | Adding, flag: bool) -> torch.Tensor:
        return cache.read(x) if flag else cache.read(x) - 1


def test_traces_for_arguments_of_another_class_are_not_taken_for_outdated_ones(cache_dir: Path) -> None:
    x = torch.ones(2, 4)
    for traces in (2, 0):
        cached = gearcache.cache_compile(Reader().run, config=strict_config(max_variants=2), cache_dir=cache_dir)
        for cache, flag in ((Doubling(), True), (Doubling(), False), (Adding(), True), (Doubling(), True)):
            assert torch.equal(cached(x, cache, flag), Reader().run(x, cache, flag))
        assert (cached.stats.traces, cached.stats.eager_calls) == (traces, 1)


class Cut(torch.nn.Module):
    def repeat(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:, i] for i in range(x.shape[1])])

    def cut(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, : int(x.shape[1] * 0.7)]

    def step(self, x: torch.Tensor, position: int, length: int) -> torch.Tensor:
        return x[position:].sum() * int(length * 0.7)

    def rounded(self, x: torch.Tensor, t: float) -> torch.Tensor:
        return x * round(t, 1)


SIZES = [(torch.ones(2, length),) for length in (4, 5, 6)]
ROW = torch.arange(12.0)


@pytest.mark.parametrize(
    ("name", "calls", "because"),
    [
        (
            "repeat",
            SIZES,
            "`x.size(1)` is a constant of each variant, because the trace needs its value: `return torch",
        ),
        ("cut", SIZES, "sizes that vary have a variant for each value, because it computes `trunc(0.7*float("),
        (
            "step",
            [(ROW, 2, length) for length in (4, 5, 6)],
            "(`length` is a constant of each variant, because it computes `int` of a number)",
        ),
        (
            "rounded",
            [(ROW, t) for t in (0.1, 0.2, 0.3, 0.4)],
            "because the trace needs its value: `return x * round(t, 1)` in `rounded`",
        ),
    ],
)
def test_the_message_tells_why_each_size_or_number_has_a_variant(
    name: str, calls: list[Any], because: str, cache_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    method, config = getattr(Cut(), name), strict_config(max_variants=len(calls) - 1)
    cached = gearcache.cache_compile(method, config=config, cache_dir=cache_dir)
    for given in calls:
        assert torch.equal(cached(*given), method(*given))
    assert because in caplog.text


SCALE = 0.5


class Scaled(torch.nn.Module):
    def run(self, x: torch.Tensor) -> torch.Tensor:
        return x * SCALE


def test_traces_of_constants_of_earlier_deployments_make_room(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(2, 4)

    def deployed(scale: float) -> tuple[int, int]:
        gc.collect()  # a new process has nothing of those before
        monkeypatch.setattr("tests.serving.call.test_limits.SCALE", scale)
        net = Scaled()
        cached = gearcache.cache_compile(net.run, config=strict_config(max_variants=2), dynamic=False)
        assert torch.equal(cached(x), x * scale)
        return cached.stats.traces, cached.stats.eager_calls

    assert [deployed(scale) for scale in (1.0, 2.0, 3.0)] == [(1, 0)] * 3
    assert deployed(3.0) == (0, 0), "the newest stay"
    assert deployed(1.0) == (1, 0)


class Layer(torch.nn.Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.number


def test_traces_that_other_instances_use_stay(cache_dir: Path) -> None:
    x = torch.ones(2, 4)
    for traces in ([1, 1, 0, 0], [0, 0, 0, 0]):
        layers = [Layer(number + 0.5) for number in range(4)]
        config = strict_config(max_variants=2)
        served = [gearcache.cache_compile(layer.run, config=config, dynamic=False) for layer in layers]
        for layer, cached in zip(layers, served, strict=True):
            assert torch.equal(cached(x), layer.run(x))
        assert [cached.stats.traces for cached in served] == traces
        assert [cached.stats.eager_calls for cached in served] == [0, 0, 1, 1]


class Layout(torch.nn.Module):
    def of_layout(self, x: torch.Tensor) -> torch.Tensor:
        return x * (2 if x.dtype == torch.float64 else 3) + x.stride(0)

    def of_rows(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def of_two(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum(0, True) + y.sum(0, True)


def test_gears_only_validation_takes_the_graph_that_was_stored_for_such_tensors(cache_dir: Path) -> None:
    net, gears = Layout(), {"x": {0: [2, 4]}}
    single, double = torch.ones(2, 4), torch.ones(2, 4, dtype=torch.float64)
    kinds = [double, single, single.t().contiguous().t()]
    stored = gearcache.cache_compile(net.of_layout, config=strict_config(on_miss="compile"), gears=gears)
    assert all(torch.equal(stored(x), net.of_layout(x)) for x in kinds)
    for x in kinds:
        cached = gearcache.cache_compile(net.of_layout, config=strict_config(validate="gears"), gears=gears)
        for _ in range(3):
            assert torch.equal(cached(x), net.of_layout(x))
        assert cached.stats.traces == 0


def test_gears_only_validation_notices_the_state_of_torch(cache_dir: Path) -> None:
    net, x = Layout(), torch.ones(2, 4)
    cached = gearcache.cache_compile(net.of_rows, config=strict_config(validate="gears"))
    for _ in range(2):
        with torch.no_grad():
            cached(x)
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            cached(x)
    assert cached.stats.traces == 2


def test_gears_only_validation_compares_the_size_of_one_gear_too(cache_dir: Path) -> None:
    config = strict_config(validate="gears", on_miss="pad", pad_values={"x": 0.0})
    cached = gearcache.cache_compile(Layout().of_rows, config=config, gears={"x": {0: [8]}})
    for rows in (8, 5, 8):
        x = torch.randn(rows, 4)
        assert torch.equal(cached(x), x * 2)
    assert (cached.stats.padded_calls, cached.stats.compiles) == (1, 1)


def test_the_order_in_which_gears_are_written_makes_no_difference(cache_dir: Path) -> None:
    written: dict[str, dict[int, list[int]]] = {"x": {0: [2, 4]}, "y": {0: [3, 6]}}
    for gears in (written, dict(reversed(written.items()))):
        cached = gearcache.cache_compile(Layout().of_two, config=strict_config(), gears=gears)
        report = gearcache.prewarm(lambda: cached(torch.ones(2), torch.ones(3)))  # noqa: B023
    assert (len(report.entries[0].present), cached.stats.compiles) == (2, 0)


class Shifted(torch.nn.Module):
    def __init__(self, scale: float, shift: float) -> None:
        super().__init__()
        self.scale, self.shift = scale, shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.shift


def test_only_the_nearest_of_several_stored_graphs_is_told_of(cache_dir: Path) -> None:
    def first_call(scale: float, shift: float) -> str:
        cached = gearcache.cache_compile(Shifted(scale, shift).forward, config=strict_config(), dynamic=False)
        cached(torch.ones(2))
        return str(cached.explain()).rpartition("miss: ")[2]  # the last reason, and what to do

    first_call(1.5, 1.5), first_call(2.5, 1.5)
    told_of_shift = first_call(2.5, 3.5)
    assert told_of_shift.startswith("`self.shift`: constant was 1.5, is now 3.5")
    assert "scale" not in told_of_shift
    told_of_both = first_call(7.5, 1.5)
    assert told_of_both.startswith("`self.scale` is 7.5; the 2 stored traces are for 1.5, 2.5")
