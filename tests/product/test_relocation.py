"""A cache may be copied, moved and served from elsewhere: it hits; and nothing unverified is ever unpickled."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.product.test_crashes import report, run
from tests.support.source_tree import LAYERS, layer_files, parse, place_of

#: Names whose call runs code that is in data.
RUNS_DATA = ("pickle", "marshal", "shelve", "dill", "eval", "exec", "torch.load", "torch.jit.load", "torch.package")


def can_rename_the_host() -> bool:
    command = ["unshare", "-Uru", "hostname", "elsewhere"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.slow
def test_a_cache_in_another_place_home_and_host_hits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = report(run("product_actors.py", tmp_path / "here" / "cache", "serve"))
    assert first["compiles"] == 2
    shutil.move(tmp_path / "here", tmp_path / "there")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", "somebody")
    monkeypatch.setenv("TMPDIR", str(home))
    before = f"import os; os.chdir({str(home)!r})"
    if can_rename_the_host():
        before += "; from tests.support.mounted import call_this_host; call_this_host('elsewhere')"
    found = report(run("product_actors.py", tmp_path / "there" / "cache", "serve", before=before))
    assert (found["hits"], found["traces"], found["compiles"], found["warnings"]) == (1, 0, 0, [])


def called(tree: ast.AST) -> list[str]:
    nodes = list(ast.walk(tree))
    names = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
    return names + [
        alias.name for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names
    ]


def test_nothing_of_ours_runs_data_but_the_one_place_that_runs_generated_code() -> None:
    """`guards/dispatch/generated.py` compiles functions that were written here, from manifests that were verified
    before, and runs the text that torchair generated, out of a verified blob: that text is the artifact."""
    found = {
        str(path)
        for layer in (*LAYERS, "root")
        for path in layer_files(layer)
        if any(name in place_of(path).read_text() for name in RUNS_DATA)
        for name in called(parse(path))
        if name in RUNS_DATA or name.startswith(("pickle.", "marshal.", "shelve.", "dill."))
    }
    assert found == {"guards/dispatch/generated.py"}
