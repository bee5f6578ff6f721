"""Ranks of real jobs agree, or end together with the same error, whatever befalls one of them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import gearcache
from gearcache.errors import OptionError
from tests.support.rank_actors import Job, Net, geared, run_job
from tests.support.sampled import sampled

RESULT = 20.0
MANIFESTS = "v*/entries/*/*/*/manifest.msgpack"


@pytest.fixture(scope="module")
def store() -> Iterator[int]:
    """A store that outlives jobs, as that of torchelastic's agent does; its port."""
    hosted = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield hosted.port
    del hosted


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cache that has all that three ranks need to decode."""
    folder = tmp_path_factory.mktemp("filled")
    reports = run_job(Job(folder, world=3))
    assert [report["result"] for report in reports] == [RESULT] * 3
    assert sorted(report["compiled"] for report in reports) == [0, 0, 2], "one compiles for all"
    return folder


@pytest.fixture
def warm(filled: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    shutil.copytree(filled / "cache", tmp_path / "cache")
    return tmp_path


def errors(reports: list[dict[str, Any]]) -> set[tuple[Any, Any]]:
    """The distinct errors of the ranks that were not killed; `None` for one that ended otherwise."""
    return {(report.get("rank"), report.get("reason")) for report in reports if report}


def test_a_relaunch_compiles_and_traces_nothing_and_no_mark_stays(warm: Path) -> None:
    again = run_job(Job(warm, world=3))
    assert [(report["result"], report["compiled"], report["traces"]) for report in again] == [(RESULT, 0, 0)] * 3
    assert len(list(warm.glob(f"cache/{MANIFESTS}"))) == 3
    assert not list((warm / "cache").glob("v*/locks/agree-*"))


def test_a_rank_that_lacks_its_entry_or_has_it_damaged_compiles_while_the_others_wait(warm: Path) -> None:
    shutil.copytree(warm / "cache", warm / "other")
    for blob in (warm / "other").glob("v*/blobs/*/*"):
        blob.chmod(0o600)
        blob.write_bytes(b"x" + blob.read_bytes()[1:])
    next(path for path in warm.glob(f"cache/{MANIFESTS}") if "rank1" in str(path)).unlink()
    reports = run_job(Job(warm, world=3, caches={2: "other"}))
    assert [(report["result"], report["compiled"]) for report in reports] == [(RESULT, 0), (RESULT, 2), (RESULT, 2)]


def test_ranks_without_a_common_folder_compile_once_where_they_have_a_tier(tmp_path: Path) -> None:
    (tmp_path / "tier").mkdir()
    tier = f"folder:{tmp_path / 'tier'}?unsigned=1"
    job = Job(tmp_path, world=3, caches={0: "host-0", 1: "host-0", 2: "host-1"}, remotes=tier)
    reports = run_job(job)
    assert [(report["result"], report["compiled"]) for report in reports] == [(RESULT, 2), (RESULT, 0), (RESULT, 0)]
    again = run_job(replace(job, remotes=""))
    assert [(report["result"], report["compiled"], report["traces"]) for report in again] == [(RESULT, 0, 0)] * 3


def check_that_a_killed_rank_is_named(reports: list[dict[str, Any]], rank: int, timeout: float) -> None:
    assert reports[rank] == {}
    left = [report for report in reports if report]
    assert len(left) == 2
    ((named, reason),) = errors(reports)
    assert named == rank
    assert f"did not answer within {timeout:g} s" in reason
    assert all(timeout - 0.5 < report["seconds"] < timeout + 4 for report in left), left


def test_when_a_rank_is_killed_in_a_cold_start_the_others_end_in_time_with_one_error(
    tmp_path: Path, store: int
) -> None:
    reports = run_job(Job(tmp_path, world=3, port=store, timeout=2.0, faults={1: "kill at adoption"}))
    check_that_a_killed_rank_is_named(reports, 1, 2.0)


def test_when_a_rank_is_killed_the_others_end_with_one_error_and_a_restarted_job_reads_nothing_of_it(
    warm: Path, store: int
) -> None:
    job = Job(warm, world=3, port=store, timeout=1.0)
    for rank, phase in ((0, "load"), (1, "arrival")):
        reports = run_job(replace(job, faults={rank: f"kill at {phase}"}))
        check_that_a_killed_rank_is_named(reports, rank, job.timeout)
    for environ in ({}, {"TORCHELASTIC_RUN_ID": "7", "TORCHELASTIC_RESTART_COUNT": "3"}):
        reports = run_job(replace(job, environ=environ))
        assert [report.get("agreed") for report in reports] == [True] * 3, reports


def test_a_rank_that_hangs_is_named_by_all_others(warm: Path, store: int) -> None:
    reports = run_job(Job(warm, world=3, port=store, timeout=1.0, faults={2: "hang at lookup"}, limit=8))
    assert errors(reports) == {(2, reports[1]["reason"])}
    assert "did not answer within 1 s" in reports[1]["reason"]


@pytest.mark.parametrize("kind", sampled(["kill", "stop"], ["kill"]))  # `test_alone` has a store that stands still
def test_a_store_whose_host_is_killed_or_stands_still_ends_all_ranks_in_time(warm: Path, kind: str) -> None:
    reports = run_job(Job(warm, world=3, timeout=1.0, faults={0: f"{kind} at load"}, limit=15))
    ((named, reason),) = errors(reports)
    assert (named, reports[0]) == (0, {})
    assert "the store of the job cannot be reached any more" in reason
    assert all(report["seconds"] < 7 for report in reports if report), reports


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_interrupted_while_it_waits_ends_all_at_once(warm: Path, store: int, rank: int) -> None:
    faults = {rank: "interrupted at lookup", 2: "hang at lookup"}
    reports = run_job(Job(warm, world=3, port=store, faults=faults, limit=12))
    assert errors(reports) == {(rank, "KeyboardInterrupt")}
    assert reports[1 - rank]["seconds"] < 5


def test_a_compile_that_fails_ends_all_at_once(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, faults={0: "raise at compile"}))
    assert errors(reports) == {(0, "ZeroDivisionError: the rank's own fault")}
    assert all(report["seconds"] < 8 for report in reports), "nobody waits for the deadline"


def test_a_call_that_no_graph_can_be_made_of_is_traced_at_one_start_alone(tmp_path: Path) -> None:
    job = Job(tmp_path, "open rows", caches={0: "cache", 1: "other"})
    cold, warm = run_job(job), run_job(job)
    assert [(report["agreed"], report["result"]) for report in cold + warm] == [(True, 16.0)] * 4
    assert [(report["compiled"], report["traces"]) for report in warm] == [(0, 0)] * 2
    # What one rank can make no rank leaves out: one without its entry, where the method changed as nothing records.
    shutil.rmtree(tmp_path / "other")
    reports = run_job(replace(job, options={"takes one row": True}))
    assert [(report["agreed"], report.get("one row")) for report in reports] == [(True, 8.0)] * 2


def test_two_models_and_agreeing_twice(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, "two models"))
    assert [(report["agreed"], report["result"]) for report in reports] == [([True] * 3, [20.0, 42.0])] * 2
    assert sum(report["compiled"] for report in reports) == 3
    assert [report["warnings"] for report in reports] == [[], []]


def test_a_later_miss_never_compiles(tmp_path: Path) -> None:
    for report in run_job(Job(tmp_path, "later miss")):
        for on_miss, found in report["found"].items():
            assert found["compiled when called"] == 0
            if on_miss == "compile":
                assert found["later"].startswith("CompileNotAgreed: `Net.decode`")
                assert "call gearcache.agree again on all ranks" in found["later"]
            else:
                assert (found["later"], found["eager"]) == (found["wanted"], {"ranks": 1})
            assert found["again"] == found["wanted"]


def test_attached_and_decorated_parts_of_a_model_are_agreed_on(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, "attached"))
    assert [report.get("result") for report in reports] == [[8.0, 24.0]] * 2, reports
    assert [report["compiled"] for report in reports] in ([2, 0], [1, 1]), "each rank compiles a part, or one both"
    assert [report["exchanged"] for report in reports] == ["CompileNotAgreed"] * 2


def test_ranks_that_compile_without_an_agreement_say_so_once(tmp_path: Path) -> None:
    for rank, report in enumerate(run_job(Job(tmp_path, "without"))):
        (warning,) = report["warnings"]
        assert f"`Net.decode` is compiled by rank {rank} of 2 by itself" in warning
        assert "call gearcache.agree(model)" in warning


def test_stages_of_a_pipeline_share_a_compile_among_the_ranks_of_each(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, "stages", world=3))
    assert [report["result"] for report in reports] == [40.0, 48.0, 40.0]
    assert [report["compiled"] for report in reports] == [1, 1, 0]


def test_a_method_that_nobody_declared_is_named_on_all_ranks_unless_warm_says_how(tmp_path: Path) -> None:
    other, undeclared = run_job(Job(tmp_path, "undeclared"))
    assert other["rank"] == 1
    assert "nobody knows what calls of `Net.decode` look like" in other["reason"]
    assert undeclared["error"] == f"OptionError: {other['reason']}"
    reports = run_job(Job(tmp_path, "undeclared", options={"warm": True}))
    assert [report["result"] for report in reports] == [RESULT] * 2


def test_alone_it_has_no_effect(cache_dir: Path) -> None:
    model = Net()
    method = geared(model)
    gearcache.agree(model)
    assert not cache_dir.exists() or not list(cache_dir.iterdir())
    assert float(method(torch.ones(2, 4)).sum()) == RESULT


ODD_TIMEOUTS = (0, True, "9", 1e10, 10**9000, math.nan)


@pytest.mark.parametrize("options", [{"warm": 3}, *({"timeout": odd} for odd in ODD_TIMEOUTS)])
def test_parameters_of_no_use_are_refused_before_anything_else(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"agree: {next(iter(options))} is"):
        gearcache.agree(Net(), **options)
