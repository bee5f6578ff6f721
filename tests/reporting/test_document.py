"""`gearcache report --json`: the numbers of a cache, of its methods and traffic, and what cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gearcache.cache.admin.tally import count_misses
from gearcache.cache.layout import Layout
from gearcache.cache.remote.tier_counts import TierCounts
from gearcache.cache.store import DiskStore
from tests.support.commands import DECODE, run, run_json
from tests.support.commands import store as store_plain
from tests.support.recorded import store_geared, write_trace

GEARS = ["ids.size(0)=1", "ids.size(0)=4"]


def test_the_overview_is_what_stats_says(cache_dir: Path) -> None:
    keys = [store_geared(cache_dir, label, GEARS) for label in ("Model.decode", "Model.prefill")]
    disk = DiskStore(Layout(cache_dir))
    assert disk.use(keys[0])
    for _ in range(3):
        disk.count_load(keys[0])
    count_misses(Layout(cache_dir), "Model.decode", ["absent", "source"])
    TierCounts(Layout(cache_dir), "redis://cache:6379").add(hits=3, bytes_fetched=10)
    report, stats = run_json("report"), run_json("stats")
    assert [(row["tier"], row["hits"]) for row in report["tiers"]] == [("redis://cache:6379", 3)]
    assert report["tiers"] == stats["tiers"]
    overview = report["overview"]
    assert {name: overview[name] for name in stats if name in overview} == {
        name: stats[name] for name in stats if name in overview
    }
    assert (overview["hits"], overview["misses"], overview["compile_seconds_saved"]) == (3, 2, 15.0)
    assert [row["method"] for row in report["methods"]] == [row["method"] for row in stats["methods"]]
    assert [row["reason"] for row in report["reasons"]] == ["absent", "source"]
    assert all(row["advice"] for row in report["reasons"])


def test_gears_have_their_size_and_compile_time_and_variants_what_tells_them_apart(cache_dir: Path) -> None:
    store_geared(cache_dir, "Model.decode", GEARS, checks=(True, False))
    (entry,) = run_json("report")["entries"]
    assert [(row["gear"], row["variant"], row["seconds"]) for row in entry["gears"]] == [
        (gear, variant, 2.5) for variant in (0, 1) for gear in GEARS
    ]
    assert {row["size"] for row in entry["gears"]} == {len("Model.decode 2.13.0")}
    assert entry["variants"] == [["flag: equal True"], ["flag: equal False"]]


def test_an_entry_says_what_its_key_has_other_than_the_one_before(cache_dir: Path) -> None:
    store_geared(cache_dir, "Model.decode", GEARS, torch="2.12.0")
    store_geared(cache_dir, "Model.decode", GEARS, torch="2.13.0")
    newer, older = run_json("report")["entries"]
    assert older["differs"] is None
    assert newer["differs"]["from"] == f"Model.decode-{older['key'][:12]}"
    assert (newer["differs"]["fact"], newer["differs"]["more"]) == ("versions.torch", 0)
    assert (newer["differs"]["this"], newer["differs"]["other"]) == ("'2.13.0'", "'2.12.0'")


def test_calls_and_shapes_come_from_traces_and_are_added_up(cache_dir: Path, tmp_path: Path) -> None:
    store_geared(cache_dir, "Model.decode", GEARS)
    row = {
        "method": "Model.decode",
        "gears": {"ids.size(0)=1": 5, "ids.size(0)=4": 2},
        "padded": {"ids.size(0)=3": 4},
        "eager_reasons": {"on_miss": 1},
        "dims": ["ids.size(0)"],
        "shapes": [{"shape": [6], "calls": 1}],
    }
    traces = [write_trace(tmp_path / name, row) for name in ("a.json", "b.json")]
    report = run_json("report", *[part for trace in traces for part in ("--trace", str(trace))])
    traffic = report["methods"][0]["traffic"]
    assert (traffic["processes"], traffic["calls"], traffic["padded_calls"]) == (2, 24, 8)
    assert [(each["gear"], each["calls"]) for each in traffic["gears"]] == [("ids.size(0)=1", 10), ("ids.size(0)=4", 4)]
    assert traffic["outside"] == [
        {"text": "ids.size(0)=3", "calls": 8, "padded": 8},
        {"text": "ids.size(0)=6", "calls": 2, "padded": 0},
    ]


def test_misses_of_a_trace_have_reason_values_place_and_advice(cache_dir: Path, tmp_path: Path) -> None:
    reason = {"kind": "source", "text": "`f` was edited", "subject": "f", "stored": "ab", "present": "cd"}
    row = {"method": "Model.decode", "reasons": [{**reason, "file": "/srv/model.py", "line": 12, "times": 2}]}
    store_geared(cache_dir, "Model.decode", GEARS)
    (miss,) = run_json("report", "--trace", str(write_trace(tmp_path / "a.json", row)))["misses"]
    assert {**row["reasons"][0], "start": 0}.items() <= miss.items()
    assert miss["advice"].startswith("compile again after each deployment")


def test_payloads_of_another_form_and_damaged_manifests_are_faults(cache_dir: Path) -> None:
    store_geared(cache_dir, "Model.decode", GEARS)
    store_plain(cache_dir, DECODE, b"x", payload={"parts": 3, "variants": "no"})
    bad = store_geared(cache_dir, "Model.bad", GEARS)
    Layout(cache_dir).manifest(bad).write_bytes(b"damaged")
    report = run_json("report")
    assert len(report["faults"]) == 2
    assert sorted(entry["is_read"] for entry in report["entries"]) == [False, True]
    assert "warning" in run("report", "--output", str(cache_dir.parent / "page.html")).stderr


def test_a_cache_that_is_not_there_is_an_empty_report(cache_dir: Path) -> None:
    report = run_json("report")
    assert (report["exists"], report["entries"], report["overview"]["entries"]) == (False, [], 0)
    assert not cache_dir.exists()


def test_the_page_goes_where_output_says(cache_dir: Path, tmp_path: Path) -> None:
    store_geared(cache_dir, "Model.decode", GEARS)
    assert run("report", "--output", "-").stdout.startswith("<!DOCTYPE html>")
    assert "--json" in run("report", "--output", "-", "--json", code=2).stderr
    (tmp_path / "link.html").symlink_to("page.html")
    run("report", "--output", str(tmp_path / "link.html"))
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "."):
        assert "it is no regular file" in run("report", "--output", str(tmp_path / name), code=2).stderr
    assert (tmp_path / "fifo").is_fifo()


@pytest.mark.parametrize(
    "text, told",
    [
        ("{", "truncated"),
        ('{"traceEvents": []}', "missing required field `gearcache`"),
        ('{"traceEvents": [], "gearcache": {"methods": [3]}}', "Expected `object`, got `int`"),
        ('{"gearcache": {"methods": [' + "[" * 100_000, "start.json"),
    ],
)
def test_what_is_no_trace_is_a_fault_and_the_rest_is_told(
    text: str, told: str, cache_dir: Path, tmp_path: Path
) -> None:
    store_geared(cache_dir, "Model.decode", GEARS)
    (tmp_path / "start.json").write_text(text)
    report = run_json("report", "--trace", str(tmp_path / "start.json"))
    assert (len(report["faults"]), report["starts"], len(report["entries"])) == (1, [], 1)
    assert "start.json" in report["faults"][0]
    assert told in report["faults"][0]
