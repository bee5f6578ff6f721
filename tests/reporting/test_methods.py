"""Methods of a report: classes and names that share a label are told apart, and the gears are those of today."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from gearcache.cache.admin.tally import count_misses
from gearcache.cache.layout import Layout
from gearcache.telemetry import start_trace
from tests.support.commands import run_json
from tests.support.recorded import store_geared, write_trace
from tests.test_events import Net, cached

GEARS = ["ids.size(0)=1", "ids.size(0)=4"]


def report(tmp_path: Path, *records: dict[str, Any]) -> list[dict[str, Any]]:
    """The methods of a report with one recorded process."""
    found: list[dict[str, Any]] = run_json("report", "--trace", str(write_trace(tmp_path / "a.json", *records)))[
        "methods"
    ]
    return found


def test_two_classes_of_one_name_are_two_methods(cache_dir: Path, tmp_path: Path) -> None:
    for owner, gears in (("pa:Model", GEARS), ("pb:Model", ["ids.size(0)=8"])):
        store_geared(cache_dir, "Model.encode", gears, owner=owner)
    count_misses(Layout(cache_dir), "Model.encode", ["absent"])
    records = [
        {"method": "Model.encode", "owner": owner, "gears": {gear: calls}, "declared": []}
        for owner, gear, calls in (("pa:Model", GEARS[0], 3), ("pb:Model", "ids.size(0)=8", 7))
    ]
    found = {row["owner"]: row for row in report(tmp_path, *records)}
    assert {owner: (row["entries"], row["misses"]) for owner, row in found.items()} == {
        "pa:Model": (1, 0),
        "pb:Model": (1, 0),
        "": (0, 1),  # misses are counted by name
    }
    assert [each["gear"] for each in found["pa:Model"]["traffic"]["gears"]] == GEARS
    assert found["pb:Model"]["traffic"]["calls"] == 7
    assert found[""]["traffic"] is None


def test_gears_of_entries_that_nobody_uses_any_more_are_no_present_gears(cache_dir: Path, tmp_path: Path) -> None:
    store_geared(cache_dir, "Model.decode", ["ids.size(0)=3"])
    padded = {"gears": {"ids.size(0)=4": 1}, "padded": {"ids.size(0)=3": 5}}
    (row,) = report(tmp_path, {"method": "Model.decode", "declared": ["ids.size(0)=4", "ids.size(0)=8"], **padded})
    traffic = row["traffic"]
    assert [each["gear"] for each in traffic["gears"]] == ["ids.size(0)=4", "ids.size(0)=8"]
    assert traffic["outside"] == [{"text": "ids.size(0)=3", "sizes": [3], "calls": 5, "padded": 5}]
    assert traffic["padding_now"] == round(1 - (5 * 3 + 4) / (6 * 4), 4)
    assert len(traffic["suggested"]["sizes"][0]["sizes"]) == 2


def test_of_two_recordings_of_one_process_the_later_one_counts(cache_dir: Path, tmp_path: Path) -> None:
    traces = [
        write_trace(tmp_path / name, {"method": "Model.decode", "gears": {GEARS[0]: calls}})
        for name, calls in (("late.json", 9), ("early.json", 5))
    ]
    for order in (traces, traces[::-1]):
        found = run_json("report", *[part for trace in order for part in ("--trace", str(trace))])
        assert [(row["traffic"]["processes"], row["traffic"]["calls"]) for row in found["methods"]] == [(1, 9)]
        assert [start["file"] for start in found["starts"]] == ["late.json"]
        (fault,) = found["faults"]
        assert "early.json` holds the same recording" in fault


def test_a_trace_says_which_gears_and_which_class_a_method_has(
    cache_dir: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    recorder = start_trace.Recorder(str(tmp_path / "start.json"))
    monkeypatch.setattr("gearcache.telemetry.spans._recorder", recorder)
    cached(Net())(torch.randn(2, 4))

    class Other(Net):
        """A class of its own, under the same name."""

    Other.__name__ = "Net"
    cached(Other())(torch.randn(2, 4))
    rows = {row["owner"]: row for row in recorder._document()["gearcache"]["methods"]}
    assert rows["tests.test_events:Net"]["declared"] == [f"x.size(0)={size}" for size in (2, 4)]
    assert len(rows) == 2
