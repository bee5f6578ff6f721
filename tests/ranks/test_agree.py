"""Ranks of real jobs agree, or end together with the same error, whatever befalls one of them."""

from __future__ import annotations

import math
import shutil
import signal
import subprocess
import sys
import threading
import time
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

RESULT = 20.0


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


def manifests(folder: Path) -> list[Path]:
    return sorted(folder.glob("v*/entries/*/*/*/manifest.msgpack"))


def test_a_relaunch_compiles_and_traces_nothing_and_no_mark_stays(warm: Path) -> None:
    again = run_job(Job(warm, world=3))
    assert [(report["result"], report["compiled"], report["traces"]) for report in again] == [(RESULT, 0, 0)] * 3
    assert len(manifests(warm / "cache")) == 3
    assert not list((warm / "cache").glob("v*/locks/agree-*"))


def test_the_one_cold_rank_compiles_while_the_others_wait(warm: Path) -> None:
    next(path for path in manifests(warm / "cache") if "rank1" in str(path)).unlink()
    reports = run_job(Job(warm, world=3))
    assert [(report["result"], report["compiled"]) for report in reports] == [(RESULT, 0), (RESULT, 2), (RESULT, 0)]


def test_ranks_without_a_common_folder_compile_once_in_each(warm: Path) -> None:
    job = Job(warm, world=3, caches={1: "other", 2: "other"})
    reports = run_job(job)
    assert [report["result"] for report in reports] == [RESULT] * 3
    assert sorted(report["compiled"] for report in reports) == [0, 0, 2]
    assert [report["compiled"] for report in run_job(job)] == [0] * 3


def test_ranks_without_a_common_folder_compile_once_where_they_have_a_tier(tmp_path: Path) -> None:
    (tmp_path / "tier").mkdir()
    tier = f"folder:{tmp_path / 'tier'}?unsigned=1"
    caches = {rank: f"host-{rank // 2}" for rank in range(4)}
    reports = run_job(Job(tmp_path, world=4, caches=caches, remotes=tier))
    assert [(report["result"], report["compiled"]) for report in reports] == [(RESULT, 2), *[(RESULT, 0)] * 3]
    again = run_job(Job(tmp_path, world=4, caches=caches))
    assert [(report["result"], report["compiled"], report["traces"]) for report in again] == [(RESULT, 0, 0)] * 4


def test_a_damaged_blob_is_compiled_anew_by_agreement(warm: Path) -> None:
    shutil.copytree(warm / "cache", warm / "other")
    for blob in (warm / "other").glob("v*/blobs/*/*"):
        blob.chmod(0o600)
        blob.write_bytes(b"x" + blob.read_bytes()[1:])
    reports = run_job(Job(warm, world=3, caches={1: "other"}))
    assert [(report["result"], report["compiled"]) for report in reports] == [(RESULT, 0), (RESULT, 2), (RESULT, 0)]


def thorough(rank: int, phase: str) -> Any:
    return pytest.param(rank, phase, marks=pytest.mark.thorough)


@pytest.mark.parametrize(
    ("rank", "phase"),
    [
        thorough(0, "arrival"),
        (1, "arrival"),
        thorough(0, "lookup"),
        thorough(1, "lookup"),
        (0, "compile"),
        (1, "adoption"),
        (0, "load"),
        thorough(1, "load"),
    ],
)
def test_when_a_rank_is_killed_the_others_end_in_time_with_one_error(
    warm: Path, store: int, rank: int, phase: str
) -> None:
    timeout = 2.0
    if phase in ("compile", "adoption"):
        shutil.rmtree(warm / "cache")
        timeout = {"compile": 2.0, "adoption": 3.0}[phase]
    reports = run_job(Job(warm, world=3, port=store, timeout=timeout, faults={rank: f"kill at {phase}"}))
    assert reports[rank] == {}
    left = [report for report in reports if report]
    assert len(left) == 2
    ((named, reason),) = errors(reports)
    assert named == rank
    assert f"did not answer within {timeout:g} s" in reason
    assert all(timeout - 0.5 < report["seconds"] < timeout + 4 for report in left), left


@pytest.mark.parametrize("rank", [2, pytest.param(0, marks=pytest.mark.thorough)])
def test_a_rank_that_hangs_is_named_by_all_others(warm: Path, store: int, rank: int) -> None:
    reports = run_job(Job(warm, world=3, port=store, timeout=1.5, faults={rank: "hang at lookup"}, limit=8))
    assert errors(reports) == {(rank, reports[1]["reason"])}
    assert "did not answer within 1.5 s" in reports[1]["reason"]


@pytest.mark.parametrize("kind", ["kill", "stop"])
def test_a_store_whose_host_is_killed_or_stands_still_ends_all_ranks_in_time(warm: Path, kind: str) -> None:
    reports = run_job(Job(warm, world=3, timeout=1.0, faults={0: f"{kind} at load"}, limit=15))
    ((named, reason),) = errors(reports)
    assert (named, reports[0]) == (0, {})
    assert "the store of the job cannot be reached any more" in reason
    assert all(report["seconds"] < 7 for report in reports if report), reports


@pytest.mark.thorough
def test_a_store_that_goes_away_alone(warm: Path) -> None:
    program = (
        "import torch.distributed as d, time; s = d.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False); "
        "print(s.port, flush=True); time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        port = int(host.stdout.readline())
        threading.Timer(1.0, lambda: host.send_signal(signal.SIGKILL)).start()
        begin = time.monotonic()
        reports = run_job(Job(warm, world=3, port=port, timeout=20, faults={1: "hang at lookup"}, limit=12))
    assert time.monotonic() - begin < 13
    assert [reports[0]["rank"], reports[2]["rank"]] == [0, 0]
    assert reports[0]["reason"] == reports[2]["reason"]
    assert "store of the job cannot be reached" in reports[0]["reason"]


@pytest.mark.parametrize("fault", ["raise at lookup", "interrupt at load"])
def test_a_rank_that_fails_by_itself_ends_all_at_once(warm: Path, fault: str) -> None:
    reports = run_job(Job(warm, world=3, faults={0: fault}))
    left = reports[1:] if "interrupt" in fault else reports
    ((named, reason),) = errors(left)
    assert named == 0
    assert ("KeyboardInterrupt" if "interrupt" in fault else "ZeroDivisionError: the rank's own fault") in reason
    assert all(report["seconds"] < 8 for report in left), "nobody waits for the deadline"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_interrupted_while_it_waits_ends_all_at_once(warm: Path, store: int, rank: int) -> None:
    faults = {rank: "interrupted at lookup", 2: "hang at lookup"}
    reports = run_job(Job(warm, world=3, port=store, faults=faults, limit=12))
    assert errors(reports) == {(rank, "KeyboardInterrupt")}
    assert reports[1 - rank]["seconds"] < 5


def test_a_compile_that_fails_ends_all_at_once(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, faults={0: "raise at compile"}))
    assert errors(reports) == {(0, "ZeroDivisionError: the rank's own fault")}


def test_on_disagree_eager_lets_all_ranks_run_the_method_itself(warm: Path, store: int) -> None:
    options = {"on_disagree": "eager"}
    job = Job(warm, world=3, port=store, options=options, faults={1: "raise at load"})
    reports = run_job(job)
    assert [(report["agreed"], report["result"], report["eager"]) for report in reports] == [
        (False, RESULT, {"ranks": 1})
    ] * 3
    assert [report["agreed"] for report in run_job(replace(job, faults={}))] == [True] * 3


@pytest.mark.parametrize(
    "environ",
    [
        {},
        pytest.param({"TORCHELASTIC_RUN_ID": "7", "TORCHELASTIC_RESTART_COUNT": "{}"}, marks=pytest.mark.thorough),
    ],
)
def test_a_restarted_job_reads_no_votes_and_no_words_of_the_one_before(
    warm: Path, store: int, environ: dict[str, str]
) -> None:
    for start, fault in enumerate(["kill at load", "kill at lookup", "kill at arrival", ""]):
        variables = {name: value.format(start) for name, value in environ.items()}
        faults = {start % 2: fault} if fault else {}
        reports = run_job(Job(warm, world=3, port=store, timeout=1.5, faults=faults, environ=variables))
        assert [bool(report.get("agreed")) for report in reports] == [not fault] * 3, reports


def test_a_call_that_no_graph_can_be_made_of_is_traced_at_one_start_alone(tmp_path: Path) -> None:
    cold, warm = run_job(Job(tmp_path, "open rows")), run_job(Job(tmp_path, "open rows"))
    assert [(report["agreed"], report["result"]) for report in cold + warm] == [(True, 16.0)] * 4
    assert [(report["compiled"], report["traces"]) for report in warm] == [(0, 0)] * 2


def test_what_one_rank_can_make_no_rank_leaves_out(tmp_path: Path) -> None:
    """A rank without the entry of an earlier start, where the method has changed in a way that nothing records."""
    caches = {0: "cache", 1: "other"}
    run_job(Job(tmp_path, "open rows", caches=caches))
    shutil.rmtree(tmp_path / "other")
    reports = run_job(Job(tmp_path, "open rows", caches=caches, options={"takes one row": True}))
    assert [(report["agreed"], report.get("one row")) for report in reports] == [(True, 8.0)] * 2


def test_two_models_and_agreeing_twice(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, "two models"))
    assert [(report["agreed"], report["result"]) for report in reports] == [([True] * 3, [20.0, 42.0])] * 2
    assert sum(report["compiled"] for report in reports) == 3
    assert run_job(Job(tmp_path, "often"))[1]["agreed"] == [True] * 5


@pytest.mark.parametrize(
    "on_miss",
    ["compile", "eager", pytest.param("background", marks=pytest.mark.thorough)],
)
def test_a_later_miss_never_compiles(tmp_path: Path, on_miss: str) -> None:
    for report in run_job(Job(tmp_path, "later miss", options={"on_miss": on_miss})):
        if on_miss in ("eager", "background"):
            assert report["later"] == 50.0
            assert report["eager"] == {"ranks": 1}
        else:
            assert report["later"].startswith(("CompileNotAgreed: `Net.decode`", "InputError: `Net.decode`"))
        if on_miss == "compile":
            assert "call gearcache.agree again on all ranks" in report["later"]
        assert report["again"] == 50.0
        assert report["compiled"] <= 2


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
    reports = run_job(Job(tmp_path, "without", options={"agrees": True}, caches={0: "new", 1: "new"}))
    assert [report["warnings"] for report in reports] == [[], []]


def test_stages_of_a_pipeline_share_a_compile_among_the_ranks_of_each(tmp_path: Path) -> None:
    reports = run_job(Job(tmp_path, "stages", world=4))
    assert [report["result"] for report in reports] == [40.0, 96.0] * 2
    assert [report["compiled"] for report in reports] == [1, 1, 0, 0]


def test_a_method_that_nobody_declared_is_named_on_all_ranks_unless_warm_says_how(tmp_path: Path) -> None:
    other, undeclared = run_job(Job(tmp_path, "undeclared"))
    assert other["rank"] == 1
    assert "nobody knows what calls of `Net.decode` look like" in other["reason"]
    assert undeclared["error"] == f"OptionError: {other['reason']}"
    reports = run_job(Job(tmp_path, "undeclared", options={"on_disagree": "eager"}))
    assert [(report["result"], report["compiled"]) for report in reports] == [(RESULT, 0)] * 2, "eager on both ranks"
    reports = run_job(Job(tmp_path, "undeclared", options={"warm": True}))
    assert [report["result"] for report in reports] == [RESULT] * 2


def test_alone_it_has_no_effect(cache_dir: Path) -> None:
    model = Net()
    method = geared(model)
    assert gearcache.agree(model)
    assert not cache_dir.exists() or not list(cache_dir.iterdir())
    assert float(method(torch.ones(2, 4)).sum()) == RESULT


ODD_TIMEOUTS = (0, True, "9", 1e10, 1e300, 10**400, 10**9000, math.nan)


@pytest.mark.parametrize("options", [{"on_disagree": "stop"}, *({"timeout": odd} for odd in ODD_TIMEOUTS)])
def test_parameters_of_no_use_are_refused_before_anything_else(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"agree: {next(iter(options))} is"):
        gearcache.agree(Net(), **options)
