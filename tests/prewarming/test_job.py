"""Ranks of a job that one process prewarms, and what the environment of a launcher says."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import gearcache
from gearcache.errors import OptionError
from gearcache.prewarming.launched import Launched, launched
from tests.scenarios import collectives
from tests.support.commands import run_json
from tests.support.relaunch import run_python
from tests.support.scenarios import strict_config


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


def test_a_method_of_before_the_prewarm_is_compiled_for_each_rank(cache_dir: Path) -> None:
    x = torch.zeros(2, 4)
    cached = gearcache.cache_compile(torch.nn.Linear(4, 4).forward, config=strict_config())
    report = gearcache.prewarm(lambda: cached(x), world_size=2)
    assert [(entry.rank, entry.compiled != {}) for entry in report.entries] == [(0, True), (1, True)]
    assert len({entry.entry for entry in report.entries}) == 2


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
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    target = "tests.scenarios.collectives:build"
    report = run_json("prewarm", target)
    assert [(entry["rank"], len(entry["compiled"])) for entry in report["entries"]] == [(1, 2)]
    report = run_json("prewarm", target, "--world-size", "3", "--rank", "0")
    assert [entry["ranks"] for entry in report["entries"]] == ["world3global_rank0"], "what is given wins"


def test_what_is_no_job_is_none_and_wrong_variables_are_named() -> None:
    for rank, message in (("x", r"\$RANK is 'x'; it must be a whole number"), ("2", r"\$RANK is 2, but \$WORLD_SIZE")):
        with pytest.raises(OptionError, match=message):
            launched({"RANK": rank, "WORLD_SIZE": "2"})
    assert launched({}) is None
    assert launched({"WORLD_SIZE": "2"}) is None
    assert launched({"RANK": "0", "WORLD_SIZE": "1"}) is None
    assert launched({"RANK": "1", "WORLD_SIZE": "2"}) == Launched(1, 2)
    local = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert launched({"RANK": "5", "WORLD_SIZE": "8", **local}) == Launched(5, 8, 1, 4)


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
