"""Ranks that export together: who shares a folder, who waits for whom, and what all hear when one fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch.distributed as dist

from gearcache.errors import CompileError
from gearcache.exporting import export_ranks
from gearcache.exporting.export_folder import NEW, work_folder
from gearcache.exporting.export_ranks import ExportRanks
from gearcache.exporting.torchair_export import put_in_place_together
from tests.exporting.exports import contents


def export_both(
    target: Path, content: str, *, second: Callable[[], None], overwrite: bool = True
) -> list[BaseException | None]:
    """Export by two ranks, of which rank 1 does `second` before it has converted its graph; what each raised."""
    store = dist.HashStore()

    def one(rank: int) -> None:
        ranks = ExportRanks("Model.forward", store, rank, 2)
        with work_folder(target) as work, ranks.reporting():
            (work / NEW / f"rank_{rank}").mkdir()
            (work / NEW / f"rank_{rank}" / "dynamo.pbtxt").write_text(content)
            (work / NEW / f"net{rank}.air").write_text(content)
            if rank == 1:
                second()
            put_in_place_together(ranks, work, target, overwrite=overwrite)

    with ThreadPoolExecutor(2) as pool:
        return [future.exception() for future in [pool.submit(one, rank) for rank in range(2)]]


def of_both(content: str) -> dict[str, str]:
    return {name.format(rank): content for rank in range(2) for name in ("net{}.air", "rank_{}/dynamo.pbtxt")}


def test_a_folder_of_two_ranks_changes_once_both_are_ready(tmp_path: Path) -> None:
    target, seen = tmp_path / "mp", []

    def slowly() -> None:
        time.sleep(0.1)  # rank 0 is ready long before
        seen.append(contents(target))

    assert export_both(target, "one", second=slowly) == [None, None]
    assert contents(target) == of_both("one")
    assert export_both(target, "two", second=slowly) == [None, None]
    assert contents(target) == of_both("two")
    assert seen == [{}, of_both("one")]
    assert [path.name for path in tmp_path.iterdir()] == ["mp"]


def test_without_one_rank_the_old_folder_stays(tmp_path: Path) -> None:
    target = tmp_path / "mp"
    export_both(target, "one", second=lambda: None)

    def fail() -> None:
        raise RuntimeError("no graph")

    first, second = export_both(target, "two", second=fail)
    assert isinstance(first, CompileError)
    assert "rank 1: RuntimeError: no graph" in str(first)
    assert isinstance(second, RuntimeError)
    assert contents(target) == of_both("one")
    assert [path.name for path in tmp_path.iterdir()] == ["mp"]
    first, second = export_both(target, "three", second=lambda: None, overwrite=False)
    assert isinstance(first, FileExistsError)
    assert isinstance(second, CompileError)
    assert "holds `net0.air`" in str(second)
    assert contents(target) == of_both("one")


def test_a_rank_that_never_comes_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(export_ranks, "SAYS_AFTER", 0.05)
    monkeypatch.setattr(export_ranks, "GIVES_UP_AFTER", 0.3)
    ranks = ExportRanks("Model.forward", dist.HashStore(), 0, 3)
    with caplog.at_level("WARNING", "gearcache"), pytest.raises(TimeoutError, match=r"for rank 1, 2; each rank of the"):
        ranks.ask("converted", range(3))
    assert [record.getMessage() for record in caplog.records] == [
        "dynamo_export: rank 0 waits for rank 1, 2, which has to call it too"
    ]
