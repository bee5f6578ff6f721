"""Start another Python with this one's import path: the same flags except `-P`, the same `sys.path`."""

from __future__ import annotations

import os
import subprocess
import sys

#: Python 3.10 has no `-P`: `-c` puts the working folder first, and the program removes it before anything is imported.
_SAME_PATH = "import sys; sys.path[:] = sys.argv[1:]; del sys.argv[1:]\n"


def python_command(program: str) -> list[str]:
    """Return the command that runs a program text under the flags and the `sys.path` of this process."""
    paths = [path for path in sys.path if isinstance(path, str) and "\0" not in path]
    return [sys.executable, *_flags(), "-c", _SAME_PATH + program, *paths]


def python_environment() -> dict[str, str]:
    """Return this environment without variables that make an interpreter import or run code at its start.

    A relative `PYTHONPATH` could name another folder than when this process was started.
    """
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONINSPECT")}


def _flags() -> list[str]:
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    # Without it Python 3.13 imports `linecache`, maybe one in the working folder, before our first line.
    if sys.version_info >= (3, 11) and not sys.flags.safe_path:
        flags.append("-P")
    for name, value in sys._xoptions.items():
        option = name if value is True else f"{name}={value}"
        if option not in flags:
            flags += ["-X", option]
    return flags
