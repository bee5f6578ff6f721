"""Ranks that do not call `agree` as the others do: all end at once where that can be known, and are in step again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ranks.test_agree import RESULT
from tests.support.rank_actors import Job, run_job

OFTEN = "every rank has to call agree equally often"


def the_story(reports: list[dict[str, Any]], name: str = "first") -> tuple[int, str]:
    """The one rank and reason that all reports have."""
    stories = {tuple(report[name]) if isinstance(report[name], list) else report[name] for report in reports}
    assert len(stories) == 1, stories
    (story,) = stories
    assert isinstance(story, tuple), story
    return story


@pytest.mark.parametrize(
    ("rank", "wrong", "error"),
    [
        (1, {"timeout": 0}, "OptionError: agree: timeout is 0"),
        (1, {"timeout": 10**400}, "OptionError: agree: timeout is 1000"),
        (0, {"on_disagree": "stop"}, "OptionError: agree: on_disagree is 'stop'"),
        pytest.param(1, {"warm": 3}, "OptionError: agree: warm is 3", marks=pytest.mark.thorough),
        (2, {"model": "empty"}, "OptionError: agree: the model has no cached method"),
        pytest.param(0, {"model": 3}, "TypeError: agree: model is an int", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("how", ["raise", pytest.param("eager", marks=pytest.mark.thorough)])
def test_a_rank_that_calls_it_wrongly_ends_all_at_once_and_the_next_call_meets(
    tmp_path: Path, rank: int, wrong: dict[str, Any], error: str, how: str
) -> None:
    options = {"rank": rank, "wrong": wrong, "on_disagree": how}
    reports = run_job(Job(tmp_path, "wrongly", world=3, options=options))
    others = [report for other, report in enumerate(reports) if other != rank]
    if how == "eager" and wrong == {"model": "empty"}:
        assert [report["first"] for report in reports] == [False] * 3
    else:
        named, reason = the_story(others)
        assert named == rank
        assert error.partition(": ")[2] in reason
        assert reports[rank]["first"].startswith(error)
    assert all(report["first_seconds"] < 10 for report in reports), "nobody waits for the deadline"
    assert [(report["second"], report["result"]) for report in reports] == [(True, RESULT)] * 3


def test_a_part_of_a_declared_range_that_no_graph_takes_is_named(tmp_path: Path) -> None:
    for report in run_job(Job(tmp_path, "ranged")):
        assert (report["first"], report["result"]) == (True, "CompileNotAgreed")
        (said,) = report["said"]
        assert said.startswith("Branches.decode: no graph takes the declared sizes x.size(0)=2 to 4, so a call")


@pytest.mark.parametrize("bare", [False, True])
def test_a_store_in_python_is_used_as_it_is_or_what_it_lacks_is_told(tmp_path: Path, bare: bool) -> None:
    reports = run_job(Job(tmp_path, "python_store", timeout=6, options={"bare": bare}))
    if not bare:
        assert [(report["first"], report["result"]) for report in reports] == [(True, RESULT)] * 2
    for report in reports if bare else ():
        assert "written in Python, lacks a method" in report["first"][1]
        assert 'Store::check"' in report["first"][1]
        assert report["first_seconds"] < 5


@pytest.mark.parametrize("rank", [0, 1])
def test_a_lock_that_nobody_gives_up_is_told_before_the_deadline(tmp_path: Path, rank: int) -> None:
    reports = run_job(Job(tmp_path, "held", timeout=1.5, options={"rank": rank}))
    named, reason = the_story(reports)
    assert named == rank
    assert "another process is compiling this entry" in reason
    assert all(report["first_seconds"] < 2.5 for report in reports), reports
    assert [(report["second"], report["result"]) for report in reports] == [(True, RESULT)] * 2


def test_a_call_beside_another_one_is_refused_on_all_ranks_and_the_next_one_meets(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, "threads", world=3, timeout=8))
    assert reports[0]["other"].startswith("OptionError: agree: it is running in this process already")
    named, reason = the_story(reports[1:], "other")
    assert named == 0
    assert reports[0]["other"] == f"OptionError: {reason}"
    assert [(report["first"], report["second"]) for report in reports] == [(True, True)] * 3


def test_a_call_that_one_rank_leaves_out_is_told_with_its_number_and_its_methods(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, "seldom", world=3, timeout=2))
    assert reports[2]["second"] is True, "it has met the others at their first call"
    named, reason = the_story(reports[:2], "second")
    assert named == 2
    assert "did not answer within 2 s; it came last to agreement 1 (`Pair.decode`)" in reason
    assert "this is agreement 2 (`Pair.decode`)" in reason
    assert OFTEN in reason


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_comes_when_the_others_have_given_up_ends_like_them_and_is_in_step(
    tmp_path: Path, rank: int
) -> None:
    reports = run_job(Job(tmp_path, "late", world=3, timeout=1, options={"rank": rank, "after": 2.5}))
    named, reason = the_story(reports)
    assert named == rank
    assert "did not answer within 1 s" in reason
    assert "it has come to no agreement of this job yet, and this is agreement 1 (`Net.decode`)" in reason
    assert reports[rank]["first_seconds"] < 0.9
    assert [(report["second"], report["result"]) for report in reports] == [(True, RESULT)] * 3


@pytest.mark.parametrize("how", ["interrupted", "early"])
def test_a_rank_that_gives_up_before_rank_0_has_come_ends_all_at_once(tmp_path: Path, how: str) -> None:
    reports = run_job(Job(tmp_path, "gives_up", world=3, options={"how": how}))
    left = reports if how == "early" else [reports[0], reports[2]]
    named, reason = the_story(left)
    if how == "interrupted":
        assert (named, reason) == (1, "KeyboardInterrupt")
        assert reports[1]["first"] == "interrupted"
    else:
        assert named == 0
        assert reason.endswith("; rank 1 gave up")
    assert reports[0]["first_seconds"] < 1.5, "it does not wait"
    assert reports[2]["first_seconds"] < 2.5, "it does not wait for rank 0 either"
    assert [(report["second"], report["result"]) for report in reports] == [(True, RESULT)] * 3


@pytest.mark.parametrize("again", [False, True])
def test_a_process_that_is_forked_inside_of_it_is_no_rank(tmp_path: Path, again: bool) -> None:
    reports = run_job(Job(tmp_path, "forked", options={"again": again}))
    if again:
        assert reports[0]["forked"] == "True"
    else:
        assert "OptionError: agree: this process was forked inside of it" in reports[0]["forked"]
    assert [(report["first"], report["second"], report["result"]) for report in reports] == [(True, True, RESULT)] * 2


def test_a_process_that_is_forked_from_a_rank_may_compile_for_itself(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, "forked_later"))
    assert [report["forked"] for report in reports] == ["[True, False]"] * 2
    assert [(report["first"], report["second"]) for report in reports] == [(True, True)] * 2


def test_no_rank_says_that_it_waits_for_itself(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, "slow", world=3))
    for rank, report in enumerate(reports):
        assert report["first"] is True
        named = [line.partition(" waits for ")[2] for line in report["said"]]
        assert not any(f"rank {rank}" in text for text in named), named
    assert any("rank 2" in line for line in reports[1]["said"]), reports[1]
