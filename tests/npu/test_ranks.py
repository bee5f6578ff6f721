"""Two ranks (gloo) on one cache folder, and an export of both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gearcache.exporting.torchair_export import UNCHECKED_SUFFIX
from tests.support.relaunch import ROOT


def both_ranks(root: Path, task: str) -> list[dict[str, Any]]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.npu.ranked", str(rank), str(root), task],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    reports = []
    for process in running:
        output, errors = process.communicate(timeout=500)
        assert process.returncode == 0, errors[-3000:]
        reports.append(json.loads(output.splitlines()[-1]))
    return reports


def test_each_rank_has_its_own_entry_and_finds_it_again(tmp_path: Path) -> None:
    cold, warm = both_ranks(tmp_path, "serve-cold"), both_ranks(tmp_path, "serve-warm")
    assert all(report["equal"] for report in cold + warm)
    assert [report["traces"] > 0 for report in cold] == [True, True]
    assert [report["traces"] for report in warm] == [0, 0]
    assert [report["path"] for report in warm] == [report["path"] for report in cold]
    for rank, report in enumerate(cold):
        assert f"world2global_rank{rank}" in report["path"]


def test_an_export_of_two_ranks_has_a_folder_each_and_the_files_for_atc(tmp_path: Path) -> None:
    files = both_ranks(tmp_path, "export")[0]["files"]
    expected = [f"mp_rank{rank}{UNCHECKED_SUFFIX}" for rank in range(2)]
    expected += [f"rank_{rank}/dynamo.pbtxt" for rank in range(2)]
    expected += ["model_relation_config.json", "numa_config.json"]
    assert set(expected) <= set(files)
    assert "HcomAllReduce" in (tmp_path / "mp/rank_0/dynamo.pbtxt").read_text()
