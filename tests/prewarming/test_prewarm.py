"""Prewarming: what is compiled from shapes alone serves real weights, and nothing is compiled twice."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearcache
from gearcache.ge_cache.eager import EagerBackend
from tests.scenarios import prewarmed
from tests.support.relaunch import run_python
from tests.support.sampled import chosen
from tests.support.scenarios import strict_config

SERVE = """
import json
from tests.scenarios.prewarmed import serve
print(json.dumps(serve()))
"""
GEARS = ["ids.size(0)=1", "ids.size(0)=2", "ids.size(0)=4"]
#: The graphs of the second variant.
SECOND = [f"{gear}, graph 2" for gear in GEARS]


@pytest.mark.slow
def test_what_is_made_from_shapes_is_hit_with_real_weights_and_by_all_ways_of_building_the_model(
    cache_dir: Path,
) -> None:
    report = gearcache.prewarm(prewarmed.on_meta)
    assert [(entry.method, sorted(entry.compiled), entry.failed) for entry in report.entries] == [
        ("Decoder.decode", sorted([*GEARS, *SECOND]), {}),
        ("Decoder.score", ["logits(2, 3, 32)"], {}),
    ]
    assert report.is_complete
    assert report.never_called == ["Decoder.unused"]
    served = run_python(SERVE, environ={"TORCHAIR_CACHE_HOME": str(cache_dir)})
    assert served["equal"]
    assert (served["traces"], served["misses"]) == (0, [])
    assert served["loads"] == [6, 1], "both variants of `scaled` and all gears"
    ways = (prewarmed.built_on_meta, prewarmed.default_on_meta, prewarmed.fake, prewarmed.real)
    for function in chosen(ways, (prewarmed.fake, prewarmed.real)):
        again = gearcache.prewarm(function)
        assert (again.compiled, again.failed, again.missing) == (0, 0, 0)
        assert [sorted(entry.present) for entry in again.entries] == [sorted(GEARS + SECOND), ["logits(2, 3, 32)"]]
        assert [entry.reason for entry in again.entries] == ["", ""]


def test_a_dry_run_names_what_changed(cache_dir: Path) -> None:
    entry = gearcache.prewarm(prewarmed.warm_only).entries[0].entry

    def changed() -> None:
        with torch.device("meta"):
            model = prewarmed.Decoder()
            model.keys.append(torch.zeros(1))
            model.cached_decode.warm(torch.zeros(2, 3, dtype=torch.long))

    report = gearcache.prewarm(changed, dry_run=True)
    assert report.entries[0].entry == entry
    assert report.entries[0].missing == GEARS
    assert "`self.keys`: length was 2, is now 3" in report.entries[0].reason


def test_the_model_is_on_meta_again_afterwards(cache_dir: Path) -> None:
    kept = []

    def build() -> None:
        with torch.device("meta"):
            model = prewarmed.Decoder()
        model.cached_decode(torch.zeros(2, 3, dtype=torch.long, device="meta"))
        kept.append(model)

    gearcache.prewarm(build)
    (model,) = kept
    assert {tensor.device.type for tensor in (*model.parameters(), *model.buffers(), *model.keys)} == {"meta"}
    assert type(model.head.weight) is nn.Parameter
    assert model.head.weight is model.embed.weight
    assert model.keys[0]._base is model.pool


def test_a_gear_that_fails_is_told_and_is_the_only_one_of_the_next_run(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gear, compile_ = "ids.size(0)=4", EagerBackend.compile

    def failing(backend: EagerBackend, job: Any, stage: Any) -> object:
        if job.gear == gear:
            raise RuntimeError("out of order")
        return compile_(backend, job, stage)

    with monkeypatch.context() as patch:
        patch.setattr(EagerBackend, "compile", failing)
        report = gearcache.prewarm(prewarmed.warm_only)
    assert list(report.entries[0].failed) == [gear]
    assert "out of order" in report.entries[0].failed[gear]
    assert not report.is_complete
    others = sorted(set(GEARS) - {gear})
    again = gearcache.prewarm(prewarmed.warm_only).entries[0]
    assert list(again.compiled) == [gear]
    assert sorted(again.present) == others
    assert gearcache.prewarm(prewarmed.warm_only).compiled == 0


def test_a_failure_is_told_although_another_variant_has_a_gear_of_that_name(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gear, compile_, broken = "ids.size(0)=4", EagerBackend.compile, [True]

    def failing(backend: EagerBackend, job: Any, stage: Any) -> object:
        if job.gear == gear and broken:
            raise RuntimeError("out of order")
        return compile_(backend, job, stage)

    def both_variants() -> None:
        with torch.device("meta"):
            model = prewarmed.Decoder()
            model.cached_decode.warm(torch.zeros(2, 3, dtype=torch.long))
            broken.clear()
            model.cached_decode.warm(torch.zeros(2, 3, dtype=torch.long), scaled=True)

    monkeypatch.setattr(EagerBackend, "compile", failing)
    report = gearcache.prewarm(both_variants)
    assert "out of order" in report.entries[0].failed[gear]
    assert not report.is_complete
    assert gearcache.prewarm(both_variants).is_complete


def test_each_variant_has_a_graph_for_each_gear(cache_dir: Path) -> None:
    def calls(*scaled: bool) -> Callable[[], None]:
        def build() -> None:
            with torch.device("meta"):
                model = prewarmed.Decoder()
                for value in scaled:
                    model.cached_decode.warm(torch.zeros(2, 3, dtype=torch.long), scaled=value)

        return build

    (entry,) = gearcache.prewarm(calls(False, True, True), dry_run=True).entries
    assert sorted(entry.missing) == sorted(entry.reasons) == sorted(GEARS + SECOND)
    assert gearcache.prewarm(calls(False)).compiled == 3
    (entry,) = gearcache.prewarm(calls(False, True, False), dry_run=True).entries
    assert (sorted(entry.present), sorted(entry.missing)) == (GEARS, SECOND)
    assert entry.named(entry.missing) == entry.missing
    (entry,) = gearcache.prewarm(calls(False, True, True)).entries
    assert (sorted(entry.present), sorted(entry.compiled)) == (GEARS, SECOND)
    report = gearcache.prewarm(calls(False, True))
    assert (report.present, report.compiled) == (6, 0)


def test_the_folder_of_the_prewarm_wins(cache_dir: Path, tmp_path: Path) -> None:
    def build() -> None:
        cached = gearcache.cache_compile(Scaled().decode, config=strict_config(), cache_dir=tmp_path / "own")
        cached(torch.zeros(2, 4))

    report = gearcache.prewarm(build, cache_dir=tmp_path / "given")
    assert report.entries[0].entry.startswith(str(tmp_path / "given"))
    assert not (tmp_path / "own").exists()
    assert not cache_dir.exists()


def test_a_method_that_served_before_is_prewarmed_into_the_given_folder(cache_dir: Path, tmp_path: Path) -> None:
    cached, x = gearcache.cache_compile(Scaled().decode, config=strict_config()), torch.zeros(2, 4)
    expected = cached(x)
    report = gearcache.prewarm(lambda: cached(x), cache_dir=tmp_path / "given")
    assert (report.compiled, report.is_complete) == (1, True)
    assert gearcache.prewarm(lambda: cached(x), cache_dir=tmp_path / "given", dry_run=True).is_complete
    assert torch.equal(cached(x), expected)
    assert cached.entry_path is not None
    assert cached.entry_path.startswith(str(cache_dir))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"jobs": 0}, "jobs is 0"),
        ({"world_size": 0}, "world_size is 0"),
        ({"ranks": [1]}, "ranks need a world_size"),
        ({"ranks": [2], "world_size": 2}, "rank is 2; with world_size=2 it is 0 to 1"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str, cache_dir: Path) -> None:
    with pytest.raises(ValueError, match=message):
        gearcache.prewarm(prewarmed.nothing, **arguments)


def test_one_prewarm_at_a_time_and_an_error_of_the_function_ends_it(cache_dir: Path) -> None:
    with pytest.raises(RuntimeError, match="already running"):
        gearcache.prewarm(lambda: gearcache.prewarm(prewarmed.nothing))
    gearcache.prewarm(prewarmed.nothing)


class Large(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2**16, 2**16, bias=False) for _ in range(8))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_a_model_of_128_gigabytes_needs_no_memory(cache_dir: Path) -> None:
    def build() -> None:
        with torch.device("meta"):
            model = Large()
        cached = gearcache.cache_compile(model.forward, config=strict_config(), gears={"x": {0: [2, 4]}})
        cached(torch.zeros(2, 2**16, device="meta"))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert gearcache.prewarm(build).compiled == 2
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert kibibytes < 1000 * 1024, "imports of the compiler, and no weights"


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def decode(self, x: Tensor) -> Tensor:
        return self.linear(x) * 2


@pytest.mark.usefixtures("compiled_here")
def test_inductor_compiles_from_meta_what_real_weights_hit(cache_dir: Path) -> None:
    def cached() -> Any:
        return gearcache.cache_compile(Scaled().decode, config=strict_config("inductor"))

    def build() -> None:
        with torch.device("meta"):
            cached().warm(torch.zeros(2, 4))

    report = gearcache.prewarm(build)
    assert (report.compiled, report.is_complete) == (1, True)
    torch.manual_seed(0)
    method, x = cached(), torch.randn(2, 4)
    found = method(x)
    torch.manual_seed(0)
    with torch.no_grad():
        torch.testing.assert_close(found, Scaled().decode(x), atol=1e-5, rtol=1e-5)
    assert (method.stats.compiles, method.stats.hits) == (0, 1)


@pytest.mark.slow
def test_symbols_ranges_padding_and_impossible_gears(cache_dir: Path) -> None:
    assert [len(entry.missing) for entry in gearcache.prewarm(prewarmed.geared, dry_run=True).entries] == [6, 1, 2, 4]
    report = gearcache.prewarm(prewarmed.geared)
    assert [len(entry.compiled) for entry in report.entries] == [6, 1, 2, 2]
    assert report.is_complete
    again = gearcache.prewarm(prewarmed.geared, dry_run=True)
    assert (again.present, again.is_complete) == (11, True)
    model = prewarmed.Geared()
    with torch.no_grad():
        for batch in (1, 2, 4):
            x, weight = torch.randn(batch, 6, 4), torch.randn(batch)
            assert torch.equal(model.shared(x, weight), model.weighted(x, weight))
        for rows in (2, 3, 8):
            assert torch.allclose(model.ranged(torch.ones(rows, 4)), model.plain(torch.ones(rows, 4)))
        for rows in (1, 2, 3, 4):
            assert torch.allclose(model.padded(torch.ones(rows, 4)), model.plain(torch.ones(rows, 4)))
        assert torch.equal(model.tied(torch.ones(4, 4), torch.ones(4, 4)), torch.full((4, 4), 2.0))
    methods = (model.shared, model.ranged, model.padded, model.tied)
    assert [(method.stats.traces, method.stats.misses) for method in methods] == [(0, 0)] * 4
