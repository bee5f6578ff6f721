"""Graphs that communicate: tensor parallel on two ranks (gloo under a stand-in for HCCL), cold and relaunched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.npu import hccl, static_kernels
from tests.npu.forked_ranks import run_ranks

TOGETHER = [[0, 1]]


def job(root: Path, task: str, mode: str, groups: list[list[int]], **environ: str) -> list[dict[str, Any]]:
    """Run both ranks of one job; return their reports."""
    (root / f"meet-{task}-{mode}").unlink(missing_ok=True)
    ranks = [[*map(str, (rank, 2, root, task, mode)), json.dumps(groups)] for rank in range(2)]
    return run_ranks("tests.npu.parallel", ranks, root, **environ)


def test_a_parallel_decode_step_equals_eager_and_each_job_finds_the_graphs_of_its_groups(tmp_path: Path) -> None:
    cold, warm = (job(tmp_path, f"own-{task}", "max-autotune", TOGETHER) for task in ("cold", "warm"))
    assert [report["wrong"] for report in cold + warm] == [[]] * 4
    assert [report["traces"] for report in cold + warm] == [1, 1, 0, 0]
    assert [report["path"] for report in warm] == [report["path"] for report in cold]
    assert ["world2global_rank0" in cold[0]["path"], "world2global_rank1" in cold[1]["path"]] == [True, True]
    shifted = job(tmp_path, "own-shifted", "max-autotune", [[0], [0, 1]])
    assert [(report["wrong"], report["traces"]) for report in shifted] == [([], 1)] * 2, "groups in another order"
    renamed = job(tmp_path, "own-other-names", "max-autotune", TOGETHER, **{hccl.NAMES_OF_PROCESS: "1"})
    assert [(report["wrong"], report["traces"]) for report in renamed] == [([], 0)] * 2, "both variants are kept"
    found = [[(report["compile"], report["cached"]) for report in reports] for reports in (cold, warm, renamed)]
    assert found == [[(1, 0)] * 2, [(0, 1)] * 2, [(1, 0)] * 2], "a name that is a communicator's is in GE's files"


def test_a_group_that_is_missing_or_another_is_an_error_from_the_generated_code(tmp_path: Path) -> None:
    mode = "max-autotune"
    cold = job(tmp_path, "named-cold", mode, TOGETHER)
    assert [(report["wrong"], report["traces"]) for report in cold] == [([], 1)] * 2
    missing = job(tmp_path, "named-fails", mode, [])
    other = job(tmp_path, "named-fails-other", mode, [[0], [0, 1]])
    for report in missing + other:
        assert report["traces"] == 0
        assert report["error"].startswith("CacheError: ")
        assert "torch.distributed" in report["error"]
    assert "does not exist here" in missing[0]["error"]
    assert "(name: (ranks, tag))" in missing[0]["error"]
    again = job(tmp_path, "named-warm", mode, TOGETHER)
    assert [(report["wrong"], report["traces"]) for report in again] == [([], 0)] * 2, "a failure deletes nothing"


def test_the_first_rank_of_a_host_keeps_the_static_kernels_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in static_kernels.install_compiler(tmp_path / "cann").items():
        monkeypatch.setenv(name, value)
    cold = job(tmp_path, "static-cold", "npugraph_ex", TOGETHER, LOCAL_WORLD_SIZE="2")
    did = [line.split()[0] for line in static_kernels.log()]
    assert [report["wrong"] for report in cold] == [[], []]
    assert sorted(did) == sorted(["note", "note", "compile", "install", "reselect", "reselect"])
    assert len(list(tmp_path.rglob("cache/**/*.run"))) == 1
    warm = job(tmp_path, "static-warm", "npugraph_ex", TOGETHER, LOCAL_WORLD_SIZE="2")
    assert [(report["wrong"], report["traces"]) for report in warm] == [([], 0)] * 2
    assert [line.split()[0] for line in static_kernels.log()][len(did) :] == ["install", "reselect", "reselect"]
