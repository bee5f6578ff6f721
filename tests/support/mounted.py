"""Name spaces of its own for a process that has begun: what `unshare` gives one that begins."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from pathlib import Path

_NEW_MOUNTS, _NEW_HOST, _NEW_USER = 0x00020000, 0x04000000, 0x10000000


def mount_here(folder: str | Path, options: str) -> None:
    """Mount a tmpfs at a folder, for this process and those that it starts. The process may have no other thread."""
    _leave(_NEW_MOUNTS)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)


def call_this_host(name: str) -> None:
    """Give the host another name, for this process and those that it starts. The process may have no other thread."""
    _leave(_NEW_HOST)
    socket.sethostname(name)


def _leave(kind: int) -> None:
    user, group = os.geteuid(), os.getegid()
    if ctypes.CDLL(None, use_errno=True).unshare(kind | _NEW_USER):
        raise OSError(ctypes.get_errno(), "no name space of its own")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
