"""Shares of a prewarm: together they do all, each entry once, whatever is stored and whoever begins first."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import gearcache
from gearcache.errors import OptionError
from gearcache.prewarming.share import Shard, divide, divide_among
from tests.scenarios import prewarmed
from tests.support.commands import run, run_json
from tests.support.source_tree import ROOT

TARGET = "tests.scenarios.prewarmed:on_meta"


def plan_at(path: Path) -> Any:
    """The plan that was written, which its schema has to describe."""
    plan = json.loads(path.read_text())
    schema = json.loads((ROOT / "docs" / "plan.schema.json").read_text())
    assert [error.message for error in Draft202012Validator(schema).iter_errors(plan)] == []
    assert set(plan) == set(schema["properties"])
    return plan


def test_every_entry_is_in_one_share_and_the_shares_are_even() -> None:
    count, chance = 3, random.Random(0)
    for _ in range(10):
        work = {f"entry {number}": chance.randint(1, 9) for number in range(chance.randint(0, 40))}
        shares = divide(work, count)
        assert shares == divide(dict(reversed(work.items())), count), "the order of the calls says nothing"
        assert set(shares) == set(work)
        loads = [sum(work[name] for name, share in shares.items() if share == index) for index in range(count)]
        assert max(loads) - min(loads) <= 9
        done = [name for number in range(1, count + 1) for name in work if not Shard(number, count).divide(work)(name)]
        assert sorted(done) == sorted(work)


def test_processes_do_only_what_they_meet() -> None:
    offers = {0: {"common": 4, "own 0": 1}, 1: {"common": 4, "own 1": 9}, 2: {"common": 4}}
    assert divide_among(offers) == {"own 0": 0, "own 1": 1, "common": 2}
    assert divide_among({0: {}, 1: {}}) == {}
    equal = {f"entry {number}": 2 for number in range(6)}
    assert Counter(divide_among({0: equal, 1: equal, 2: equal}).values()) == {0: 2, 1: 2, 2: 2}


@pytest.mark.parametrize(
    "text, message",
    [
        ("0/16", "shard is 0/16; with 16 shares it is 1/16 to 16/16"),
        ("x", "shard is `x`; it must be NUMBER/COUNT, such as 3/16"),
    ],
)
def test_what_is_no_share_is_told(text: str, message: str, cache_dir: Path) -> None:
    with pytest.raises(OptionError) as caught:
        Shard.parse(text)
    assert message in str(caught.value)
    done = run("prewarm", TARGET, f"--shard={text}", code=2)
    assert message in done.output
    assert not cache_dir.exists()


def test_shares_together_do_all_and_each_entry_once(cache_dir: Path) -> None:
    reports = [gearcache.prewarm(prewarmed.on_meta, shard=(number, 3)) for number in (3, 1, 2)]
    assert all(report.is_complete for report in reports)
    done = [(entry.method, entry.key) for report in reports for entry in report.entries if entry.compiled]
    assert sorted(method for method, _ in done) == ["Decoder.decode", "Decoder.score"]
    assert len({key for _, key in done}) == 2
    assert [sorted(entry.left_to for entry in report.entries) for report in reports] == [
        ["shard 1/3", "shard 2/3"],
        ["", "shard 2/3"],
        ["", "shard 1/3"],
    ]
    assert gearcache.prewarm(prewarmed.on_meta, dry_run=True).is_complete
    assert gearcache.prewarm(prewarmed.on_meta, shard=(1, 3)).compiled == 0


def test_a_share_without_work_is_done(cache_dir: Path) -> None:
    assert run("prewarm", TARGET, "--shard", "3/3").stdout == "2 entries are left to shard 1/3, shard 2/3\n"
    assert not cache_dir.exists()


def test_an_error_of_the_function_ends_a_share_before_anything_is_compiled(cache_dir: Path) -> None:
    with pytest.raises(RuntimeError, match="the deployment script is wrong"):
        gearcache.prewarm(prewarmed.broken, shard=(1, 2))
    assert not cache_dir.exists()


def test_a_plan_says_what_is_missing_and_why(cache_dir: Path, tmp_path: Path) -> None:
    run_json("prewarm", TARGET, "--plan", str(tmp_path / "plan.json"))
    plan = plan_at(tmp_path / "plan.json")
    assert not cache_dir.exists(), "a plan compiles nothing"
    assert (plan["target"], plan["root"], plan["complete"], plan["error"]) == (TARGET, str(cache_dir), False, None)
    gears = ["ids.size(0)=1", "ids.size(0)=2", "ids.size(0)=4"]
    found = [(row["method"], row["gear"]) for row in plan["missing"]]
    assert found == [*(("Decoder.decode", gear) for gear in gears), ("Decoder.score", "this call")]
    assert {row["reason"].split(" for ")[0] for row in plan["missing"]} == {"absent: no entry"}
    assert len({row["key"] for row in plan["missing"]}) == 2
    run("prewarm", TARGET, "--plan", str(tmp_path / "plan.json"), "--dry-run", code=1)

    report = run_json("prewarm", TARGET)
    run("prewarm", TARGET, "--plan", str(tmp_path / "plan.json"), "--dry-run")
    after = plan_at(tmp_path / "plan.json")
    assert (after["missing"], after["complete"]) == ([], True)
    assert {row["key"] for row in after["present"]} == {entry["key"] for entry in report["entries"]}


def test_a_plan_names_the_gear_whose_graph_is_gone(cache_dir: Path, tmp_path: Path) -> None:
    run("prewarm", "tests.scenarios.prewarmed:warm_only")
    blobs = sorted((cache_dir / "v4" / "blobs").glob("*/*"))
    blobs[0].unlink()
    run("prewarm", "tests.scenarios.prewarmed:warm_only", "--plan", str(tmp_path / "plan.json"))
    plan = plan_at(tmp_path / "plan.json")
    assert len(plan["missing"]) > 0
    assert len(plan["missing"]) + len(plan["present"]) == 3
    assert {blobs[0].name in row["reason"] for row in plan["missing"]} == {True}


def test_a_plan_of_what_fails_is_written_and_ends_with_1(cache_dir: Path, tmp_path: Path) -> None:
    done = run("prewarm", "tests.scenarios.prewarmed:broken", "--plan", str(tmp_path / "plan.json"), code=1)
    assert "raised RuntimeError" in done.output
    assert plan_at(tmp_path / "plan.json")["error"] == "RuntimeError: the deployment script is wrong"
