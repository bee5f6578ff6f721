"""The type files are what mypy says they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT

pytest.importorskip("mypy")
TYPING = Path(__file__).parent / "typing"


@pytest.mark.slow
def test_mypy_agrees_with_every_type_file() -> None:
    files = sorted(map(str, TYPING.glob("*.py")))
    assert files
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "setup.cfg", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
