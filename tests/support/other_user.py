"""Running Python as another user, as containers do: also where the interpreter lies below a folder of root's own."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.support.source_tree import ROOT


@functools.cache
def may_be_another_user() -> bool:
    """Whether this process may start others as another user."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))):
        return False
    opens = "import importlib.util as u; [open(u.find_spec(name).origin).close() for name in ('gearcache', 'torch')]"
    command = command_as(1000, [sys.executable, "-c", opens])
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def command_as(user: int, command: list[str]) -> list[str]:
    """Return a command that runs another one as a user without any rights of root's."""
    needed = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, ROOT, *sys.path) if Path(path).is_dir()}
    lines = ["set -e", "umask 022"]
    for closed in sorted({found for path in needed if (found := _closed(path)) is not None}):
        inside = sorted(path for path in needed if Path(path).is_relative_to(closed))
        inside = [
            path
            for path in inside
            if not any(Path(path) != Path(up) and Path(path).is_relative_to(up) for up in inside)
        ]
        lines += _opened(closed, inside)
    who = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    lines.append(f"exec {shlex.join([*who, *command])}")
    return ["unshare", "--mount", "sh", "-c", "\n".join(lines)]


def _closed(path: str) -> str | None:
    """Return the first folder on the way to a path that other users may not enter."""
    return next((str(up) for up in [*reversed(Path(path).parents), Path(path)] if not up.stat().st_mode & 1), None)


def _opened(closed: str, inside: Iterable[str]) -> list[str]:
    """Return commands that let others enter a folder, with parts of it alone inside: for the process that runs them."""
    held = {path: f"/mnt/{number}" for number, path in enumerate(inside)}
    lines = ["mount -t tmpfs none /mnt"]
    for path, hold in held.items():
        lines += [f"mkdir {hold}", f"mount --bind {shlex.quote(path)} {hold}"]
    lines.append(f"mount -t tmpfs -o mode=755 none {shlex.quote(closed)}")
    for path, hold in held.items():
        lines += [f"mkdir -p {shlex.quote(path)}", f"mount --bind {hold} {shlex.quote(path)}"]
    return lines
