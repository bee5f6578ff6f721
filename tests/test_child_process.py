"""Python that gearcache starts imports from where this process does, whatever lies in the working folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.source_tree import ROOT

#: Prints what a Python that `python_command` starts is like; the parent's own `sys.path` may be changed before.
PARENT = """
import sys
for path in {paths!r}: sys.path.insert(0, path)
from gearcache import child_process
import json, subprocess
program = '''
import json, queue, select, sys, msgpack
flags = {{name: getattr(sys.flags, name) for name in dir(sys.flags) if name[0].islower() and name[:2] != "n_"}}
flags = {{name: value for name, value in flags.items() if not callable(value)}}
print(json.dumps([sys.path, flags, sys.warnoptions, sys._xoptions, sys.argv]))
'''
command, environment = child_process.python_command(program), child_process.python_environment()
done = subprocess.run(command, env=environment, capture_output=True, text=True)
import queue, select
names = dict(sys.modules)
exec(program.partition("\\n")[2].partition("\\n")[2].rpartition("print")[0])
print(json.dumps([done.stdout, done.stderr, [sys.path, flags, sys.warnoptions, sys._xoptions]]))
"""
HOSTILE = "import posix\nposix.open({marker!r}, posix.O_WRONLY | posix.O_CREAT)\nraise ImportError('hostile')\n"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder with a module of every name that an interpreter, torch or gearcache may import."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    names = {*sys.stdlib_module_names, "msgpack", "torch", "filelock", "gearcache", "numpy", "usercustomize"}
    for name in {*names, "sitecustomize"}:
        (folder / f"{name}.py").write_text(HOSTILE.format(marker=str(tmp_path / "was run")))
    return folder


def ask(folder: Path, *flags: str, paths: tuple[str, ...] = (str(ROOT / "src"),), **environ: str) -> tuple[Any, Any]:
    """Return what the parent is like, and what the Python that it starts is like."""
    script = folder.parent / "application" / "parent.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(PARENT.format(paths=paths))
    done = subprocess.run(
        [sys.executable, *flags, str(script)],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8", **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    output, errors, parent = json.loads(done.stdout.splitlines()[-1])
    assert output, errors
    return parent, json.loads(output.splitlines()[-1])


@pytest.mark.parametrize(
    "flags",
    [
        [],
        pytest.param(["-P"], marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="came with Python 3.11")),
        ["-O", "-W", "ignore::ImportWarning", "-X", "int_max_str_digits=5000", "-X", "dev"],
    ],
    ids=" ".join,
)
def test_it_has_the_flags_and_the_path_of_its_parent_and_runs_nothing_of_the_working_folder(
    hostile: Path, flags: list[str]
) -> None:
    parent, child = ask(hostile, *flags)
    if sys.version_info >= (3, 11):
        parent[1]["safe_path"] = True
    assert child[:4] == parent
    assert child[4] == ["-c"]
    assert not (hostile.parent / "was run").exists()


def test_a_relative_python_path_means_what_it_meant_at_the_start(hostile: Path, tmp_path: Path) -> None:
    """The parent has changed its working folder since: its `PYTHONPATH` would lead into the new one."""
    start = tmp_path / "start"
    start.mkdir()
    environ = {"PYTHONPATH": f".:{ROOT / 'src'}"}
    program = f"import os; os.chdir({str(hostile)!r})\n" + PARENT.format(paths=())
    (start / "parent.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "parent.py"], cwd=start, env={**environ, "PATH": "/usr/bin"}, capture_output=True, text=True
    )
    output, errors, parent = json.loads(done.stdout.splitlines()[-1])
    assert json.loads(output)[0] == parent[0], errors
    assert not (tmp_path / "was run").exists()
    assert str(start) in parent[0]


def test_what_the_parent_imports_from_its_working_folder_it_imports_too(tmp_path: Path) -> None:
    """Only where the parent's own path has the folder."""
    folder = tmp_path / "own"
    folder.mkdir()
    parent, child = ask(folder, paths=(str(ROOT / "src"), ""))
    assert child[0] == parent[0]
    assert child[0][0] == ""
