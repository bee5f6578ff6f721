"""Shares of a prewarm: together they do all, each entry once, whatever is stored and whoever begins first."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

import gearcache
from gearcache.errors import OptionError
from gearcache.prewarming.share import Shard, divide_among
from tests.scenarios import prewarmed
from tests.support.commands import run, run_json

TARGET = "tests.scenarios.prewarmed:on_meta"


def test_every_entry_is_in_one_share_and_the_shares_are_even() -> None:
    count, chance = 3, random.Random(0)
    for _ in range(10):
        work = {f"entry {number}": chance.randint(1, 9) for number in range(chance.randint(0, 40))}
        left = [Shard(number, count).divide(work) for number in range(1, count + 1)]
        again = Shard(1, count).divide(dict(reversed(work.items())))
        assert [again(name) for name in work] == [left[0](name) for name in work], "the order of the calls says nothing"
        done = [[name for name in work if not left_to(name)] for left_to in left]
        assert sorted(name for names in done for name in names) == sorted(work)
        loads = [sum(work[name] for name in names) for names in done]
        assert max(loads) - min(loads) <= 9


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


def test_processes_of_a_launcher_take_shares_where_they_do_not_act_as_their_rank(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("LOCAL_RANK", rank)
        report = run_json("prewarm", TARGET, "--world-size", "1")
        assert [sorted(entry["left_to"] for entry in report["entries"]), report["complete"]] == [
            ["", f"shard {2 - int(rank)}/2"],
            True,
        ]
    (done,) = {entry["left_to"] for entry in run_json("prewarm", TARGET, "--dry-run", "--world-size", "1")["entries"]}
    assert done == "", "who only looks looks at all"


def test_a_dry_run_says_of_each_gear_why_it_is_missing(cache_dir: Path) -> None:
    run("prewarm", "tests.scenarios.prewarmed:warm_only")
    blobs = sorted((cache_dir / "v7" / "blobs").glob("*/*"))
    blobs[0].unlink()
    report = run_json("prewarm", "tests.scenarios.prewarmed:warm_only", "--dry-run", code=1)
    (entry,) = report["entries"]
    assert len(entry["missing"]) + len(entry["present"]) == 3
    assert entry["reasons"].keys() == set(entry["missing"])
    assert {blobs[0].name in reason for reason in entry["reasons"].values()} == {True}


def test_a_share_without_work_is_done(cache_dir: Path) -> None:
    assert run("prewarm", TARGET, "--shard", "3/3").stdout == "2 entries are left to shard 1/3, shard 2/3\n"
    assert not cache_dir.exists()


def test_an_error_of_the_function_ends_a_share_before_anything_is_compiled(cache_dir: Path) -> None:
    with pytest.raises(RuntimeError, match="the deployment script is wrong"):
        gearcache.prewarm(prewarmed.broken, shard=(1, 2))
    assert not cache_dir.exists()
