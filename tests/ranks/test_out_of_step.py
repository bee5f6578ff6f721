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


#: A rank, what it passes, and its error.
WRONG: tuple[tuple[int, dict[str, Any], str], ...] = (
    (1, {"timeout": 10**400}, "OptionError: agree: timeout is 1000"),
    (0, {"timeout": -1}, "OptionError: agree: timeout is -1"),
    (1, {"warm": 3}, "OptionError: agree: warm is 3"),
    (2, {"model": "empty"}, "OptionError: agree: the model has no cached method"),
    (0, {"model": 3}, "TypeError: agree: model is an int"),
)


def test_a_rank_that_calls_it_wrongly_ends_all_at_once_and_the_next_call_meets(tmp_path: Path) -> None:
    calls = [(rank, wrong) for rank, wrong, _ in WRONG]
    reports = run_job(Job(tmp_path, "wrongly", world=3, options={"calls": calls}))
    for number, (rank, _, error) in enumerate(WRONG):
        others = [report for other, report in enumerate(reports) if other != rank]
        named, reason = the_story(others, f"wrong {number}")
        assert named == rank
        assert error.partition(": ")[2] in reason
        assert reports[rank][f"wrong {number}"].startswith(error)
    seconds = [report[f"wrong {number}_seconds"] for report in reports for number in range(len(calls))]
    assert max(seconds) < 10, "nobody waits for the deadline"
    assert [(report["last"], report["result"]) for report in reports] == [(True, RESULT)] * 3


def test_a_part_of_a_declared_range_that_no_graph_takes_is_named(tmp_path: Path) -> None:
    for report in run_job(Job(tmp_path, "ranged")):
        assert (report["first"], report["result"]) == (True, "CompileNotAgreed")
        (said,) = report["said"]
        assert said.startswith("Branches.decode: no graph takes the declared sizes x.size(0)=2 to 4, so a call")


def test_a_lock_that_nobody_gives_up_is_told_before_the_deadline(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, "held", timeout=2))
    for rank in range(2):
        named, reason = the_story(reports, f"held by {rank}")
        assert named == rank
        assert "another process is compiling this entry" in reason
        assert all(report[f"held by {rank}_seconds"] < 4 for report in reports), reports
    assert [(report["last"], report["result"]) for report in reports] == [(True, RESULT)] * 2


def test_a_call_beside_another_one_is_refused_on_all_ranks_and_the_next_one_meets(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, "threads", world=3, timeout=8))
    assert reports[0]["other"].startswith("OptionError: agree: it is running in this process already")
    named, reason = the_story(reports[1:], "other")
    assert named == 0
    assert reports[0]["other"] == f"OptionError: {reason}"
    assert [(report["first"], report["second"]) for report in reports] == [(True, True)] * 3


def test_a_call_that_one_rank_leaves_out_is_told_with_its_number_and_its_methods(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, "seldom", world=3, timeout=1.5))
    assert reports[2]["second"] is True, "it has met the others at their first call"
    named, reason = the_story(reports[:2], "second")
    assert named == 2
    assert "did not answer within 1.5 s; it came last to agreement 1 (`Pair.decode`)" in reason
    assert "this is agreement 2 (`Pair.decode`)" in reason
    assert OFTEN in reason


def test_a_rank_that_comes_when_the_others_have_given_up_ends_like_them_and_is_in_step(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, "late", world=3, timeout=1, options={"after": 2.5}))
    for rank in (2, 0):
        named, reason = the_story(reports, f"without {rank}")
        assert named == rank
        assert "did not answer within 1 s" in reason
        assert reports[rank][f"without {rank}_seconds"] < 0.9
    _, reason = the_story(reports, "without 2")
    assert "it has come to no agreement of this job yet, and this is agreement 1 (`Net.decode`)" in reason
    assert [(report["last"], report["result"]) for report in reports] == [(True, RESULT)] * 3


@pytest.mark.thorough  # the test above has ranks that give up, and `test_agree` interrupts
def test_a_rank_that_gives_up_before_rank_0_has_come_ends_all_at_once(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, "gives_up", world=3))
    assert the_story([reports[0], reports[2]], "interrupted") == (1, "KeyboardInterrupt")
    assert reports[1]["interrupted"] == "interrupted"
    named, reason = the_story(reports, "early")
    assert named == 0
    assert reason.endswith("; rank 1 gave up")
    for how in ("interrupted", "early"):
        assert reports[0][f"{how}_seconds"] < 1.5, "it does not wait"
        assert reports[2][f"{how}_seconds"] < 2.5, "it does not wait for rank 0 either"
    assert [(report["last"], report["result"]) for report in reports] == [(True, RESULT)] * 3


def test_a_process_that_is_forked_from_a_rank_is_none_and_may_compile_for_itself(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, "forked"))
    assert "OptionError: agree: this process was forked inside of it" in reports[0]["forked inside"]
    assert [report["forked later"] for report in reports] == ["[True, False]"] * 2
    done = [(report["first"], report["second"], report["result"]) for report in reports]
    assert done == [(True, True, RESULT)] * 2
