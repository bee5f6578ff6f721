"""Models with adapters of peft: other inactive adapters need no trace, another active one does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.relaunch import run_python
from tests.support.source_tree import ROOT

#: Where `make` puts peft: no other test may find it, as transformers looks for it.
PEFT = Path(sys.prefix) / "peft"
PROGRAM = "import json, sys, tests.support.adapted_models as models\nprint(json.dumps(models.tenants(sys.argv[1])))"


@pytest.mark.slow
@pytest.mark.skipif(not (PEFT / "peft").is_dir(), reason=f"peft is not in {PEFT}")
def test_tenants_share_the_graphs_of_a_base_model(tmp_path: Path) -> None:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH"), str(PEFT)]))
    environ = {"PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
    reports = run_python(PROGRAM, str(tmp_path), environ=environ, compiles=True)
    assert all(report["equal"] for report in reports)
    assert [report["traces"] for report in reports] == [1, 0, 0, 0, 0, 1, 1, 1, 1]
    assert [report["hits"] for report in reports] == [0, 1, 1, 1, 1, 0, 0, 0, 0]
