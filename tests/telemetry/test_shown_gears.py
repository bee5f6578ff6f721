"""Gears are shown by their short names, and known to programs by their full texts."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

import gearcache
from gearcache.errors import UnknownGear
from tests.support.commands import run, run_json
from tests.support.scenarios import strict_config

LAYERS = 4
PATHS = ["ids", *(f"ks[{layer}]" for layer in range(LAYERS)), *(f"vs[{layer}]" for layer in range(LAYERS))]

GEARS = {path: {0: [2, 4]} for path in PATHS}


def full(size: int) -> str:
    return ", ".join(f"{path}.size(0)={size}" for path in PATHS)


class Decoder(torch.nn.Module):
    def decode(self, ids: torch.Tensor, ks: list[torch.Tensor], vs: list[torch.Tensor]) -> torch.Tensor:
        for keys, values in zip(ks, vs, strict=True):
            ids = ids + keys * values
        return ids


def call(size: int) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    def layers() -> list[torch.Tensor]:
        return [torch.ones(size, 2) for _ in range(LAYERS)]

    return torch.ones(size, 2), layers(), layers()


def test_stats_explain_and_errors_name_a_gear_by_its_batch(cache_dir: Path) -> None:
    cached = gearcache.cache_compile(Decoder().decode, config=strict_config(), gears=GEARS)
    cached(*call(2))
    assert cached.stats.gears == {full(2): 1, full(4): 0}
    assert cached.stats.to_dict()["gears"] == cached.stats.gears
    assert "gears={'ids.size(0)=2': 1, 'ids.size(0)=4': 0})" in repr(cached.stats)
    assert "loaded gears: ids.size(0)=2; ids.size(0)=4" in cached.explain()
    with pytest.raises(UnknownGear) as outside:
        cached(*call(3))
    assert outside.value.value == "outside all gears: ids.size(0)=3"
    assert outside.value.allowed == "ids.size(0)=2; ids.size(0)=4"
    mixed = call(2)
    mixed[1][3] = torch.ones(4, 2)
    with pytest.raises(UnknownGear) as outside:
        cached(*mixed)
    assert outside.value.value == "outside all gears: ids.size(0)=2, ks[3].size(0)=4"


def test_a_log_and_show_have_short_names_and_in_full_the_whole_ones(
    cache_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "gearcache"):
        gearcache.cache_compile(Decoder().decode, config=strict_config(), gears=GEARS)(*call(2))
    done = [line for line in caplog.messages if " done after " in line]
    assert [line.partition(" done")[0] for line in done] == [
        "Decoder.decode: gear ids.size(0)=2",
        "Decoder.decode: gear ids.size(0)=4",
    ]
    assert "\n  ids.size(0)=2: " in run("show", "Decoder.decode").stdout
    for more in (["--full"], ["--only", "gears"]):
        assert f"\n  {full(2)}: " in run("show", "Decoder.decode", *more).stdout
    (variant,) = run_json("show", "Decoder.decode")["variant_details"]
    assert variant["gears"][0].startswith(f"{full(2)}: ")
