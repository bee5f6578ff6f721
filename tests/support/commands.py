"""Running the command line, and caches for it that need no torch."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from gearcache.cache.keys.key import CacheKey
from gearcache.cache.layout import Layout
from gearcache.cache.store import DiskStore
from gearcache.cli import main
from tests.support.fork_server import may_fork, run_code

#: What the documents of `--json` hold.
SCHEMA = Path(__file__).parents[2] / "docs" / "commands.schema.json"
DECODE = CacheKey("Model.decode", (("gears", (1, 2)), ("versions", {"torch": "2.13.0"})))
DECODE_OLD = CacheKey("Model.decode", (("gears", (1, 2)), ("versions", {"torch": "2.12.0"})))
PREFILL = CacheKey("Model.prefill", (("gears", (8,)), ("versions", {"torch": "2.13.0"})))
PRODUCER = {"torch": "2.13.0", "gears": ["ids.size(0)=1", "ids.size(0)=2"], "variants": 1, "compile_seconds": 90.0}

#: What `python -m gearcache` does.
_MODULE = "import runpy; runpy.run_module('gearcache', run_name='__main__', alter_sys=True)"


def run(*arguments: str, code: int = 0) -> Result:
    """Run a command in this process; fails unless it ends with `code`."""
    result = CliRunner().invoke(main, arguments)
    unexpected = result.exception is not None and not isinstance(result.exception, SystemExit)
    assert not unexpected, result.exception
    assert result.exit_code == code, result.output
    return result


def run_json(*arguments: str, code: int = 0) -> Any:
    """Run a command with `--json`; stdout must be one JSON document as the schema describes it, and nothing else."""
    document = json.loads(run(*arguments, "--json", code=code).stdout)
    assert document["command"] == arguments[0]
    check_document(document)
    return document


def check_document(document: Any) -> None:
    """Fail unless a document is as `docs/commands.schema.json` says, and holds nothing that it does not name."""
    assert [f"{error.json_path}: {error.message}" for error in _validator().iter_errors(document)] == []


@functools.cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(_closed(json.loads(SCHEMA.read_text(encoding="utf-8"))))


def _closed(schema: Any) -> Any:
    """A schema that allows no other fields; the published one does, as later releases may print more."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    is_object = schema.get("type") == "object" and "properties" in schema and "allOf" not in schema
    return {**({"additionalProperties": False} if is_object else {}), **{k: _closed(v) for k, v in schema.items()}}


def listed(*arguments: str) -> list[dict[str, Any]]:
    """The entries that `gearcache list` gives."""
    entries: list[dict[str, Any]] = run_json("list", *arguments)["entries"]
    return entries


def run_process(
    *arguments: str, cwd: Path | None = None, environ: dict[str, str] | None = None, compiles: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command as its user does, in a process of its own, which may have imported torch (and compilers)."""
    variables = {**os.environ, **(environ or {})}
    if may_fork(variables):
        return run_code(_MODULE, *arguments, environ=variables, cwd=cwd or Path.cwd(), compiles=compiles)
    command = [sys.executable, "-m", "gearcache", *arguments]
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=240, check=False)


def store(
    root: Path,
    key: CacheKey,
    blob: bytes,
    ranks: str = "",
    payload: dict[str, Any] | None = None,
    clock: Callable[[], float] = time.time,
) -> Path:
    """Publish an entry with one blob; returns its manifest."""
    disk = DiskStore(Layout(root, ranks), clock=clock)
    with disk.writing():
        disk.publish(key, payload or {"parts": [], "variants": []}, {disk.put_blob(blob): len(blob)}, PRODUCER)
    return Layout(root, ranks).manifest(key)
