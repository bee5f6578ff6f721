"""CANN's half of static kernels: operators are noted while they run, `op_compiler` makes a `.run` package of them.

npugraph_ex itself is the real one: what it looks for, compiles, installs and reselects is decided by its own Python.
Everything that happens is a line of the file that `LOG` names: `note`, `compile`, `install`, `reselect`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Names the file that every process of a test appends to.
LOG = "EMULATED_CANN_LOG"
#: Set to `install` to kill the process there.
KILL_AT = "EMULATED_CANN_KILL_AT"

_COMPILER = """#!{python}
import hashlib, os, pathlib, sys
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
notes = sorted(pathlib.Path(arguments["-p"]).glob("*.json"))
digest = hashlib.sha256(b"".join(path.read_bytes() for path in notes)).hexdigest()[:16]
package = pathlib.Path(arguments["-o"], f"static_kernel_{{digest}}.run")
with open(os.environ["{log}"], "a") as log:
    print("compile", digest, len(notes), file=log)
pathlib.Path(arguments["-o"], "kernel_meta").mkdir()
pathlib.Path(arguments["-o"], "kernel_meta", "kernel.o").write_bytes(b"x" * 100)
package.write_text("#!/bin/sh\\n"
    'echo "install {{}}" >> "${log}"\\n'.format(digest) +
    'if [ "${kill}" = install ]; then kill -9 $PPID; fi\\n')
package.chmod(0o700)
"""


def install_compiler(folder: Path) -> dict[str, str]:
    """Put an `op_compiler` into a folder; return what a process needs in its environment to find it."""
    folder.mkdir(parents=True, exist_ok=True)
    compiler = folder / "op_compiler"
    compiler.write_text(_COMPILER.format(python=sys.executable, log=LOG, kill=KILL_AT))
    compiler.chmod(0o700)
    (folder / "latest").mkdir(exist_ok=True)
    path = f"{folder}:{os.environ['PATH']}"
    return {"PATH": path, LOG: str(folder / "log"), "ASCEND_HOME_PATH": str(folder / "latest")}


def log() -> list[str]:
    """What has happened so far, in all processes."""
    path = Path(os.environ[LOG])
    return path.read_text().splitlines() if path.exists() else []


def note(line: str) -> None:
    """Append to the log."""
    if LOG in os.environ:
        with Path(os.environ[LOG]).open("a") as file:
            print(line, file=file)


class _Noting(TorchDispatchMode):
    """Writes one file for each operator with its sizes, as aclop's dump does."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder / f"{os.getpid()}_opcompile"
        self._folder.mkdir()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        sizes = [[list(item.shape), str(item.dtype)] for item in args if isinstance(item, torch.Tensor)]
        text = json.dumps([function.name(), sizes])
        name = function.name().replace("::", "_").replace(".", "_")
        (self._folder / f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:8]}.json").write_text(text)
        return function(*args, **(kwargs or {}))


_noting: list[_Noting] = []


def start_dump(folder: str) -> None:
    """`torch_npu._C._aclop_start_dump`."""
    note("note")
    mode = _Noting(Path(folder))
    _noting.append(mode)
    mode.__enter__()


def stop_dump() -> None:
    """`torch_npu._C._aclop_stop_dump`."""
    _noting.pop().__exit__(None, None, None)


def reselect() -> None:
    """`torch_npu.npu._aclnn_reselect_static_kernel`."""
    note("reselect")
