"""Ranks share a compile where they would compile and store the same, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.parallel_models import BOUND, PAIRED, PLACED
from tests.support.rank_actors import Job, run_job


def test_groups_of_other_names_after_a_restart_share_a_compile_and_keep_what_was_there(tmp_path: Path) -> None:
    job = Job(tmp_path, "parallel", options={"pairs": True})
    other = replace(job, options={"pairs": True, "groups before": 2})
    reports = [run_job(job)]
    assert len(list((tmp_path / "cache").glob("v*/blobs/*/*"))) == 1
    assert len(list((tmp_path / "cache").glob("v*/entries/*/*/*/manifest.msgpack"))) == 2
    reports += [run_job(other), run_job(job)]
    assert [report["equal"] for start in reports for report in start] == [True] * 6
    assert [[report["compiled"] for report in start] for start in reports] == [[1, 0], [1, 0], [0, 0]]
    assert [[report["traces"] for report in start] for start in reports] == [[1, 1], [1, 1], [0, 0]]


@pytest.mark.slow
@pytest.mark.thorough  # the test above shares without a compiler; `test_collectives` has a compiled graph of one rank
def test_inductor_compiles_tensor_parallel_decode_of_two_pairs_once(tmp_path: Path) -> None:
    """The groups of the pairs have other names and other ranks; each rank communicates in its own."""
    options = {"backend": "inductor", "pairs": True, "exports": True}
    job = Job(tmp_path, "parallel", world=4, options=options, timeout=300, limit=300)
    cold, warm = run_job(job), run_job(job)
    assert [report["equal"] for report in cold + warm] == [True] * 8
    assert [report["compiled"] for report in cold] == [1, 0, 0, 0]
    assert [(report["compiled"], report["traces"]) for report in warm] == [(0, 0)] * 4
    assert all("it communicates in process groups" in report["exported"] for report in cold + warm)
    # Ranks 0 and 2 waited half a second inside of the compiled graph.
    assert min(report["turns"] for report in (cold[0], cold[2], warm[0], warm[2])) > 10


#: How often each of two ranks compiles a method: once for both if they do the same, each if they know who they are.
OF_TWO = {"reduced": [0, 1]} | {name: [1, 1] for name in BOUND}
#: And of four: once for all, for each pair, or for those in equal places of their groups.
OF_FOUR = {"grid": [0, 0, 0, 1]} | {name: [0, 0, 1, 1] for name in (*PAIRED, *PLACED)}


@pytest.mark.parametrize(("world", "compiles"), [(2, OF_TWO), (4, OF_FOUR)])
def test_equal_ranks_compile_once_and_those_that_differ_for_themselves(
    tmp_path: Path, world: int, compiles: dict[str, list[int]]
) -> None:
    job = Job(tmp_path, "bound", world=world, options={"names": list(compiles)}, timeout=100)
    cold, warm = run_job(job), run_job(job)
    assert [report.get("wrong", report) for report in cold + warm] == [[]] * 2 * world
    for name, expected in compiles.items():
        assert sorted(report["compiles"][name] for report in cold) == expected, name
    assert [report["all_traces"] for report in warm] == [0] * world
