"""Ranks share a compile where they would compile and store the same, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.parallel_models import BOUND, PAIRED, PLACED, SHARED
from tests.support.rank_actors import Job, run_job


def test_tensor_parallel_decode_on_four_ranks_is_compiled_once(tmp_path: Path) -> None:
    cold, warm = run_job(Job(tmp_path, "parallel", world=4)), run_job(Job(tmp_path, "parallel", world=4))
    assert [report["equal"] for report in cold + warm] == [True] * 8
    assert [report["compiled"] for report in cold] == [1, 0, 0, 0]
    assert [(report["compiled"], report["traces"]) for report in warm] == [(0, 0)] * 4
    blobs = list((tmp_path / "cache").glob("v*/blobs/*/*"))
    manifests = list((tmp_path / "cache").glob("v*/entries/*/*/*/manifest.msgpack"))
    assert (len(blobs), len(manifests)) == (1, 4)


def test_groups_of_other_names_after_a_restart_share_a_compile_and_keep_what_was_there(tmp_path: Path) -> None:
    starts = [
        {"pairs": True},
        {"pairs": True, "groups before": 2},
        {"pairs": True},
        {"pairs": True, "groups before": 2},
    ]
    reports = [run_job(Job(tmp_path, "parallel", world=4, options=options)) for options in starts]
    assert [report["equal"] for start in reports for report in start] == [True] * 16
    assert [[report["compiled"] for report in start] for start in reports] == [
        [1, 0, 0, 0],
        [1, 0, 0, 0],
        [0] * 4,
        [0] * 4,
    ]
    assert [[report["traces"] for report in start] for start in reports] == [[1] * 4, [1] * 4, [0] * 4, [0] * 4]


@pytest.mark.slow
def test_inductor_compiles_tensor_parallel_decode_of_two_pairs_once(tmp_path: Path) -> None:
    """The groups of the pairs have other names and other ranks; each rank communicates in its own."""
    job = Job(tmp_path, "parallel", world=4, options={"backend": "inductor", "pairs": True}, timeout=300, limit=300)
    cold, warm = run_job(job), run_job(job)
    assert [report["equal"] for report in cold + warm] == [True] * 8
    assert [report["compiled"] for report in cold] == [1, 0, 0, 0]
    assert [(report["compiled"], report["traces"]) for report in warm] == [(0, 0)] * 4
    # Ranks 0 and 2 waited half a second inside of the compiled graph.
    assert min(report["turns"] for report in (cold[0], cold[2], warm[0], warm[2])) > 10


@pytest.mark.thorough
def test_what_inductor_compiles_for_one_rank_serves_all(tmp_path: Path) -> None:
    job = Job(tmp_path, world=3, options={"backend": "inductor"}, timeout=300, limit=300)
    cold, warm = run_job(job), run_job(job)
    assert [report["result"] for report in cold + warm] == [20.0] * 6
    assert [report["compiled"] for report in cold] == [2, 0, 0]
    assert [(report["compiled"], report["traces"]) for report in warm] == [(0, 0)] * 3


@pytest.fixture(scope="module")
def bound(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """The reports of a cold job and of its relaunch, of four ranks with many ways to know one's rank."""
    folder = tmp_path_factory.mktemp("bound")
    return [run_job(Job(folder, "bound", world=4, timeout=100)) for _ in range(2)]


def test_what_has_a_rank_in_it_serves_that_rank_alone(bound: list[list[dict[str, Any]]]) -> None:
    assert [report.get("wrong", report) for start in bound for report in start] == [[]] * 8


@pytest.mark.parametrize(
    ("names", "compiles"),
    [(SHARED, [1, 0, 0, 0]), (PAIRED, [1, 0, 1, 0]), (PLACED, [1, 0, 1, 0])],
    ids=["all ranks", "each pair", "equal places"],
)
def test_equal_ranks_compile_once(
    bound: list[list[dict[str, Any]]], names: tuple[str, ...], compiles: list[int]
) -> None:
    for name in names:
        assert sorted(report["compiles"][name] for report in bound[0]) == sorted(compiles), name


def test_ranks_that_differ_compile_for_themselves(bound: list[list[dict[str, Any]]]) -> None:
    for name in BOUND:
        assert [report["compiles"][name] for report in bound[0]] == [1, 1, 1, 1], name


def test_the_relaunch_of_all_compiles_and_traces_nothing(bound: list[list[dict[str, Any]]]) -> None:
    assert [report["all_traces"] for report in bound[1]] == [0] * 4
