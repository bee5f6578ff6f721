"""Running the command line, and caches for it that need no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from gearcache.cache import CacheKey, DiskStore, Layout
from gearcache.cli import main

DECODE = CacheKey("Model.decode", (("gears", (1, 2)), ("versions", {"torch": "2.13.0"})))
DECODE_OLD = CacheKey("Model.decode", (("gears", (1, 2)), ("versions", {"torch": "2.12.0"})))
PREFILL = CacheKey("Model.prefill", (("gears", (8,)), ("versions", {"torch": "2.13.0"})))
PRODUCER = {"torch": "2.13.0", "gears": ["ids.size(0)=1", "ids.size(0)=2"], "variants": 1, "compile_seconds": 90.0}


def run(*arguments: str, code: int = 0) -> Result:
    """Run a command in this process; fails unless it ends with `code`."""
    result = CliRunner().invoke(main, arguments)
    unexpected = result.exception is not None and not isinstance(result.exception, SystemExit)
    assert not unexpected, result.exception
    assert result.exit_code == code, result.output
    return result


def run_json(*arguments: str, code: int = 0) -> Any:
    """Run a command with `--json`; stdout must be one JSON document and nothing else."""
    return json.loads(run(*arguments, "--json", code=code).stdout)


def run_process(
    *arguments: str, cwd: Path | None = None, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command as its user does, in a process of its own."""
    command = [sys.executable, "-m", "gearcache", *arguments]
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def store(root: Path, key: CacheKey, blob: bytes, ranks: str = "", payload: dict[str, Any] | None = None) -> Path:
    """Publish an entry with one blob; returns its manifest."""
    disk = DiskStore(Layout(root, ranks))
    with disk.writing():
        disk.publish(key, payload or {"parts": [], "variants": []}, {disk.put_blob(blob): len(blob)}, PRODUCER)
    return Layout(root, ranks).manifest(key)
