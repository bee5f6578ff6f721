"""A cache may be copied, moved and served from elsewhere: it hits; and nothing unverified is ever unpickled."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.product.test_crashes import report, run
from tests.support.sampled import sampled
from tests.support.source_tree import LAYERS, layer_files, parse

#: Names whose call runs code that is in data.
RUNS_DATA = ("pickle", "marshal", "shelve", "dill", "eval", "exec", "torch.load", "torch.jit.load", "torch.package")


def can_rename_the_host() -> bool:
    command = ["unshare", "-Uru", "hostname", "elsewhere"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", sampled(["moved", "copied"], ["moved"]))
def test_a_cache_in_another_place_home_and_host_hits(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = report(run("product_actors.py", tmp_path / "here" / "cache", "serve"))
    assert first["compiles"] == 2
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    shutil.rmtree(tmp_path / "here")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", "somebody")
    monkeypatch.setenv("TMPDIR", str(home))
    monkeypatch.chdir(home)
    prefix = ("unshare", "-Uru", "sh", "-c", 'hostname elsewhere && exec "$0" "$@"') if can_rename_the_host() else ()
    found = report(run("product_actors.py", tmp_path / "there" / "cache", "serve", prefix=prefix))
    assert (found["hits"], found["traces"], found["compiles"], found["warnings"]) == (1, 0, 0, [])


def called(tree: ast.AST) -> list[tuple[int, str]]:
    names = [(node.lineno, ast.unparse(node.func)) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names += [
        (node.lineno, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    ]
    return names


def test_nothing_of_ours_runs_data_but_the_one_place_that_runs_generated_code() -> None:
    """`guards/dispatch/generated.py` compiles functions that were written here, from manifests that were verified
    before, and runs the text that torchair generated, out of a verified blob: that text is the artifact."""
    found = {
        str(path)
        for layer in (*LAYERS, "root")
        for path in layer_files(layer)
        for _, name in called(parse(path))
        if name in RUNS_DATA or name.startswith(("pickle.", "marshal.", "shelve.", "dill."))
    }
    assert found == {"guards/dispatch/generated.py"}
