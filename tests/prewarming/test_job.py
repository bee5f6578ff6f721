"""Ranks of a job that one process prewarms, and processes of a launcher that prewarm together."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

import gearcache
from gearcache.errors import OptionError, PrewarmNotShared
from gearcache.prewarming.launched import Launched, launched
from gearcache.prewarming.meeting import ShareMeeting
from tests.scenarios import collectives
from tests.support.commands import run, run_json
from tests.support.relaunch import run_python


def test_one_process_prewarms_a_job_that_hits_with_a_real_group(cache_dir: Path) -> None:
    report = gearcache.prewarm(collectives.build, world_size=2)
    assert [(entry.rank, len(entry.compiled), entry.failed) for entry in report.entries] == [(0, 2, {}), (1, 2, {})]
    assert not dist.is_initialized()
    assert dist.init_process_group.__module__ == "torch.distributed.distributed_c10d"
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    environs = [{**place, "RANK": str(rank), "TORCHAIR_CACHE_HOME": str(cache_dir)} for rank in (0, 1)]
    program = "from tests.scenarios.collectives import serve; serve()"
    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(lambda environ: run_python(program, environ=environ), environs))
    expected = {"equal": True, "traces": 0, "compiles": 0, "hits": 1}
    assert told == [{"rank": rank, **expected} for rank in (0, 1)]


def test_a_function_that_joins_another_job_is_refused(cache_dir: Path) -> None:
    with pytest.raises(OptionError, match="rank is 3, but the prewarm acts as rank 0 of 2"):
        gearcache.prewarm(collectives.elsewhere, world_size=2)
    assert not dist.is_initialized()


def test_the_environment_is_as_before(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "5")
    monkeypatch.delenv("RANK", raising=False)
    seen = []

    def build() -> None:
        seen.append((os.environ["RANK"], os.environ["LOCAL_RANK"], dist.get_rank(), dist.get_world_size()))
        dist.destroy_process_group()
        dist.init_process_group()
        assert dist.get_rank() == 1

    gearcache.prewarm(build, world_size=2, ranks=[1])
    assert seen == [("1", "1", 1, 2)]
    assert (os.environ["LOCAL_RANK"], "RANK" in os.environ) == ("5", False)


def test_ranks_are_those_of_the_environment(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    target = "tests.scenarios.collectives:build"
    report = run_json("prewarm", target)
    assert [(entry["rank"], len(entry["compiled"])) for entry in report["entries"]] == [(1, 2)]
    report = run_json("prewarm", target, "--world-size", "3", "--rank", "0")
    assert [entry["ranks"] for entry in report["entries"]] == ["world3global_rank0"], "what is given wins"
    told = run("prewarm", target, "--plan", "plan.json", code=2).output
    assert "`--world-size 2 --plan plan.json` plans for all ranks" in " ".join(told.split())


def test_what_is_no_job_is_none_and_wrong_variables_are_named() -> None:
    for rank, message in (("x", r"\$RANK is 'x'; it must be a whole number"), ("2", r"\$RANK is 2, but \$WORLD_SIZE")):
        with pytest.raises(OptionError, match=message):
            launched({"RANK": rank, "WORLD_SIZE": "2"})
    assert launched({}) is None
    assert launched({"WORLD_SIZE": "2"}) is None
    assert launched({"RANK": "0", "WORLD_SIZE": "1"}) is None
    assert launched({"RANK": "1", "WORLD_SIZE": "2"}) == Launched(1, 2, False, 1)


def meetings(monkeypatch: pytest.MonkeyPatch, roots: list[Path], timeout: float) -> list[ShareMeeting]:
    """Meetings of the processes of a job, as threads of this one with one store."""
    store = dist.HashStore()
    monkeypatch.setattr("gearcache.prewarming.meeting.rendezvous", lambda *_, **__: iter([(store, 0, 0)]))
    world = len(roots)
    return [ShareMeeting(Launched(rank, world, True, world), root, timeout) for rank, root in enumerate(roots)]


def meet(actions: list[Callable[[], object]]) -> list[Any]:
    """Do each in a thread of its own; what they gave or raised."""
    with ThreadPoolExecutor(len(actions)) as pool:
        futures = [pool.submit(action) for action in actions]
    return [future.exception() or future.result() for future in futures]


def test_processes_with_other_caches_do_not_leave_work_to_each_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second, other = meetings(monkeypatch, [tmp_path / "a", tmp_path / "a", tmp_path / "b"], 20)
    work = {"x": 1, "y": 1}
    left = meet([lambda each=each: each.divide(work) for each in (first, second, other)])
    assert [[each(name) for name in ("x", "y")] for each in left] == [["", "process 1"], ["process 0", ""], ["", ""]]


def test_who_fails_tells_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, second = meetings(monkeypatch, [tmp_path] * 2, 20)
    found = meet([lambda: first.divide({"x": 1}), lambda: second.give_up("ValueError: no weights")])
    assert isinstance(found[0], PrewarmNotShared)
    assert "process 1 of 2: it failed: ValueError: no weights" in str(found[0])


def test_who_is_missing_is_named_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, _, third = meetings(monkeypatch, [tmp_path] * 3, 0.2)
    found = meet([lambda: first.divide({"x": 1}), lambda: third.divide({"x": 1})])
    assert ["process 1 of 3: it did not answer within 0.2 s" in str(error) for error in found] == [True, True]


def test_a_process_of_a_job_does_not_act_as_another_rank(cache_dir: Path) -> None:
    """Else the graphs of one rank would hold the number of another one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(OptionError, match="rank is 1 of 2, but this process is rank 0 of 1"):
            gearcache.prewarm(collectives.build_chosen, world_size=2, ranks=[1])
        assert dist.is_initialized()
    finally:
        dist.destroy_process_group()
    assert not cache_dir.exists()
