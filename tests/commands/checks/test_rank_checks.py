"""What `doctor` says of jobs of several ranks."""

from __future__ import annotations

from pathlib import Path

import torch

import gearcache
from gearcache.cache.layout import Layout
from gearcache.commands.checks.rank_checks import check_ranks
from tests.support.commands import run_json
from tests.support.rank_actors import TWO_BY_FOUR, Net, cached


def test_doctor_finds_entries_of_jobs_of_several_ranks(cache_dir: Path) -> None:
    def build() -> None:
        with torch.device("meta"):
            cached(Net(), "decode", TWO_BY_FOUR)

    assert gearcache.prewarm(build).is_complete
    assert check_ranks({}, Layout(cache_dir)) == []
    assert gearcache.prewarm(build, world_size=2).is_complete
    (check,) = [check for check in run_json("doctor")["checks"] if check["name"] == "ranks"]
    assert check["ok"] is None
    assert check["detail"] == "jobs of several ranks have stored entries: Net.decode"
