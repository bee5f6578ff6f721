"""Two ranks (gloo) on one cache folder, and an export of both."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torchair._ge_concrete_graph.ge_ir_pb2 import ModelDef

from gearcache.exporting.export_manifest import MANIFEST
from gearcache.exporting.torchair_export import UNCHECKED_SUFFIX
from tests.npu.forked_ranks import run_ranks
from tests.support.relaunch import ROOT


def both_ranks(root: Path, task: str) -> list[dict[str, Any]]:
    return run_ranks("tests.npu.ranked", [[str(rank), str(root), task] for rank in range(2)], root)


def test_each_rank_has_its_own_entry_and_finds_it_again(tmp_path: Path) -> None:
    cold, warm = both_ranks(tmp_path, "serve-cold"), both_ranks(tmp_path, "serve-warm")
    assert all(report["equal"] for report in cold + warm)
    assert [report["traces"] > 0 for report in cold] == [True, True]
    assert [report["traces"] for report in warm] == [0, 0]
    assert [report["path"] for report in warm] == [report["path"] for report in cold]
    for rank, report in enumerate(cold):
        assert f"world2global_rank{rank}" in report["path"]


def spawned(folder: Path, value: float) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-m", "tests.npu.spawned", str(port), str(value), str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]


def weights_of(folder: Path, rank: int) -> list[float]:
    """The weights in the exported graph of a rank: each is one number, four times."""
    model = ModelDef.FromString((folder / f"mp_rank{rank}{UNCHECKED_SUFFIX}").read_bytes())
    constants = [op.attr["value"].t.data for op in model.graph[0].op if op.type == "Const"]
    return sorted(round(float(np.frombuffer(data, np.float32)[0]), 3) for data in constants if len(data) == 16)


@pytest.mark.thorough  # `test_export` exports, and ranks below have entries of their own
def test_two_ranks_export_into_one_folder_again_and_again(tmp_path: Path) -> None:
    folder = tmp_path / "mp"
    expected = {f"mp_rank{rank}{UNCHECKED_SUFFIX}" for rank in range(2)}
    expected |= {f"rank_{rank}/{name}" for rank in range(2) for name in ("dynamo.pbtxt", "options.json")}
    expected |= {"model_relation_config.json", "numa_config.json", MANIFEST}
    for value in (2.25, 3.5):
        spawned(folder, value)
        assert [weights_of(folder, rank) for rank in range(2)] == [[1.1, value]] * 2
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert found == expected
        assert [path.name for path in tmp_path.iterdir()] == ["mp"]
        assert "HcomAllReduce" in (folder / "rank_0/dynamo.pbtxt").read_text()
        relation = json.loads((folder / "model_relation_config.json").read_text())
        assert [row["submodel_name"] for row in relation["deploy_config"]] == ["mp_rank0.air", "mp_rank1.air"]
